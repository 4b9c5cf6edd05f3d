#include "tests/fuzz/chat_properties.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "server/openai/response_request.h"
#include "tests/fuzz/request_properties.h"

namespace runnel {
namespace {

constexpr int64_t kMaxTokens = 4096;
constexpr size_t kMostTools = 128;

bool is_text(const OrderedJson& object, const char* key) {
  return object.contains(key) && object[key].is_string();
}

void check_content(const OrderedJson& message) {
  if (!message.contains("content")) return;
  const OrderedJson& content = message["content"];
  if (content.is_string()) return;
  check(content.is_array() && !content.empty(), "content is a text or parts");
  for (const OrderedJson& part : content) {
    check(part.size() == 2 && part["type"] == "text" && is_text(part, "text"), "parts are texts");
  }
}

void check_message(const OrderedJson& message) {
  constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};
  check(message.is_object() && is_text(message, "role"), "a message has a role");
  check(std::ranges::count(kRoles, message["role"]) == 1, "roles");
  check_content(message);
  if (!message.contains("tool_calls")) return;
  check(message["role"] == "assistant", "the assistant calls");
  for (const OrderedJson& call : message["tool_calls"]) {
    const OrderedJson& function = call.at("function");
    check(is_text(function, "name"), "a call has a name");
    check(function.at("arguments").is_object(), "arguments are an object");
  }
}

void check_conversation(const ChatRequest& request) {
  check(request.messages.is_array() && !request.messages.empty(), "messages");
  for (const OrderedJson& message : request.messages) check_message(message);
  const OrderedJson& last = request.messages.back();
  check(!request.continues || (last["role"] == "assistant" && last.contains("content")),
        "an assistant's text is continued");
  check(request.variables.is_object(), "variables");
  for (const auto& [name, value] : request.variables.items()) {
    check(!name.empty() && !value.is_structured(), "variables are scalars");
  }
  if (request.tools.is_null()) return;
  check(request.tools.is_array() && request.tools.size() <= kMostTools, "tools");
  for (const OrderedJson& tool : request.tools) {
    check(tool["type"] == "function" && is_text(tool["function"], "name"), "a tool is a function");
  }
}

// `read` reads the JSON object of the body.
template <typename Read>
bool check_body(std::string_view text, const ChatRequest& request, const Read& read) {
  Result<OrderedJson> body = parse_chat_body(text);
  if (!body.ok()) {
    check_fault({body.status()});
    return false;
  }
  const Fault fault = read(std::move(*body));
  if (!fault.ok()) {
    check(!fault.param.empty(), "a refusal names a field");
    check_fault(fault);
    return false;
  }
  check_conversation(request);
  const GenerateRequest& call = request.answer.call;
  check(!call.session || (call.samples == 1 && !call.state), "a session has one answer");
  check_call(request.answer.call, text.size());
  return true;
}

}  // namespace

bool check_chat_request(std::string_view body) {
  ChatRequest request;
  return check_body(body, request, [&](OrderedJson json) {
    return read_chat(std::move(json), kMaxTokens, request);
  });
}

bool check_response_request(std::string_view body) {
  ResponseRequest request;
  const bool accepted = check_body(body, request.chat, [&](OrderedJson json) {
    const auto recall = [](const std::string& id, OrderedJson& messages) -> Fault {
      messages.push_back({{"role", "user"}, {"content", id}});
      return {};
    };
    return read_response(std::move(json), kMaxTokens, recall, request);
  });
  check(!accepted || request.echo.is_object(), "the answer repeats the request");
  return accepted;
}

std::vector<std::string> chat_seeds() {
  return {
      R"({"messages":[{"role":"user","content":"Hi"}]})",
      R"({"model":"m","messages":[{"role":"developer","content":[{"type":"text","text":"a"},
          {"type":"text","text":"b","cache_control":{}}]},{"role":"user","content":"c","name":"d"}],
          "max_tokens":5,"n":2,"stop":["."],"logprobs":true,"top_logprobs":3,"stream":true,
          "stream_options":{"include_usage":true},"reasoning_effort":"none"})",
      R"({"messages":[{"role":"assistant","content":null,"reasoning_content":"x","tool_calls":[
          {"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":[1]}"}}]},
          {"role":"tool","tool_call_id":"1","content":"3"}],"tools":[{"type":"function",
          "function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto",
          "parallel_tool_calls":false,"chat_template_kwargs":{"a":1}})",
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],
          "continue_final_message":true,"add_generation_prompt":false,"modalities":["text"],
          "response_format":{"type":"text"},"verbosity":"medium","keep":true,"position":3})",
      R"({"messages":[{"role":"user","content":"a"}],"session":"s","position":3,"n":1})",
  };
}

std::vector<std::string> response_seeds() {
  return {
      R"({"input":"Hi","instructions":"a","max_output_tokens":5,"metadata":{"a":"b"}})",
      R"({"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},
          {"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"s"}],
           "content":[{"type":"reasoning_text","text":"t"}]},
          {"type":"message","role":"assistant","content":[{"type":"output_text","text":"b",
           "annotations":[],"logprobs":[]}],"status":"completed"},
          {"type":"function_call","call_id":"1","name":"f","arguments":"{\"a\":1}"},
          {"type":"function_call_output","call_id":"1","output":"3"}],
          "tools":[{"type":"function","name":"f","parameters":{},"strict":false}]})",
      R"({"input":"a","stream":true,"stream_options":{"include_obfuscation":true},"store":true,
          "reasoning":{"effort":"low","summary":null},"text":{"format":{"type":"text"}},
          "include":["message.output_text.logprobs"],"top_logprobs":2,"truncation":"disabled",
          "background":false,"previous_response_id":null,"temperature":0,"top_p":0.5})",
  };
}

std::span<const std::string_view> chat_words() {
  static constexpr std::string_view kWords[] = {"\"messages\"",
                                                "\"input\"",
                                                "\"role\"",
                                                "\"content\"",
                                                "\"user\"",
                                                "\"assistant\"",
                                                "\"system\"",
                                                "\"tool\"",
                                                "\"type\"",
                                                "\"text\"",
                                                "\"tool_calls\"",
                                                "\"function\"",
                                                "\"name\"",
                                                "\"arguments\"",
                                                "\"{}\"",
                                                "\"tools\"",
                                                "\"parameters\"",
                                                "\"reasoning\"",
                                                "\"summary\"",
                                                "\"function_call\"",
                                                "\"call_id\"",
                                                "\"output\"",
                                                "\"input_text\"",
                                                "\"output_text\"",
                                                "\"metadata\"",
                                                "\"include\"",
                                                "\"instructions\"",
                                                "\"continue_final_message\"",
                                                "\"stream\"",
                                                "\"tool_choice\"",
                                                "\"none\"",
                                                "\"chat_template_kwargs\"",
                                                "\"session\"",
                                                "\"\\ufffd\"",
                                                "\"\\ud83d\\ude00\"",
                                                "null",
                                                "true",
                                                "false",
                                                "-1",
                                                "1e40",
                                                "9223372036854775808",
                                                "[]",
                                                "{}",
                                                "\"\"",
                                                "[[[[[[[[["};
  return kWords;
}

}  // namespace runnel
