#include "server/openai/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fuzz/chat_properties.h"
#include "tests/fuzz/walk.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kMaxTokens = 4096;

Fault read(const std::string& body, ChatRequest& request) {
  Result<OrderedJson> json = parse_chat_body(body);
  if (!json.ok()) return {json.status()};
  return read_chat(std::move(*json), kMaxTokens, request);
}

// A body with one user message, and `more` fields.
std::string body_of(const std::string& more = "") {
  return R"({"messages":[{"role":"user","content":"Hi"}])" + (more.empty() ? "" : "," + more) + "}";
}

ChatRequest accepted(const std::string& body) {
  ChatRequest request;
  const Fault fault = read(body, request);
  EXPECT_TRUE(fault.ok()) << body << "\n" << fault.status.message();
  return request;
}

ChatRequest with_messages(const std::string& messages) {
  return accepted(R"({"messages":)" + messages + "}");
}

std::string text(const OrderedJson& json) { return json_text(json); }

TEST(ChatRequest, DefaultsMatchTheDocs) {
  const ChatRequest request = accepted(body_of());
  EXPECT_EQ(request.answer.call.max_values, kMaxTokens);
  EXPECT_EQ(request.answer.call.samples, 1);
  EXPECT_FALSE(request.answer.stream || request.answer.logprobs || request.one_call);
  EXPECT_TRUE(request.tools.is_null());
  EXPECT_EQ(text(request.messages), R"([{"role":"user","content":"Hi"}])");
}

TEST(ChatRequest, FieldsAreTaken) {
  const ChatRequest request = accepted(body_of(
      R"("model":"m","max_completion_tokens":7,"n":2,"stop":["a"],"temperature":0,"top_p":0.5,
         "top_k":3,"min_p":0.1,"seed":-1,"logprobs":true,"top_logprobs":4,"stream":true,
         "stream_options":{"include_usage":true},"parallel_tool_calls":false,
         "tool_choice":"auto","reasoning_effort":"low","keep":true,"state":"s","position":3,
         "return_token_ids":true,"response_format":{"type":"text"},"modalities":["text"],
         "verbosity":"medium","user":"u","prediction":null,"presence_penalty":0.5,"frequency_penalty":-1,
         "repetition_penalty":1.5,"logit_bias":{"7":1.5,"3":-100},
         "chat_template_kwargs":{"enable_thinking":true,"z":1,"a":"b"})"));
  const AnswerRequest& answer = request.answer;
  EXPECT_EQ(answer.model, "m");
  EXPECT_EQ(answer.call.max_values, 7);
  EXPECT_EQ(answer.call.samples, 2);
  EXPECT_EQ(answer.call.top_log_probs, 4);
  EXPECT_EQ(answer.logprobs, 4);
  EXPECT_TRUE(answer.stream && answer.include_usage && answer.return_token_ids);
  ASSERT_NE(answer.call.penalties, nullptr);
  EXPECT_EQ(*answer.call.penalties, (Penalties{1.5F, -1.0F, 0.5F, {{3, -100.0F}, {7, 1.5F}}}));
  EXPECT_EQ(accepted(body_of(R"("presence_penalty":0,"logit_bias":{})")).answer.call.penalties,
            nullptr);
  EXPECT_TRUE(request.one_call);
  EXPECT_EQ(text(request.variables),
            R"({"reasoning_effort":"low","enable_thinking":true,"z":1,"a":"b"})");
  EXPECT_EQ(accepted(body_of(R"("max_tokens":5)")).answer.call.max_values, 5);
  EXPECT_EQ(accepted(body_of(R"("logprobs":true)")).answer.logprobs, 0);
  EXPECT_EQ(text(accepted(body_of(R"("reasoning_effort":"none")")).variables),
            R"({"reasoning_effort":"none","enable_thinking":false})");
}

TEST(ChatRequest, MessagesBecomeWhatTemplatesTake) {
  EXPECT_EQ(
      text(with_messages(
               R"([{"role":"developer","content":[{"type":"text","text":"a"},
                        {"text":"b","type":"text","cache_control":{"type":"ephemeral"}}]},
                        {"role":"user","content":"c","name":"Ann"}])")
               .messages),
      R"([{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"user","content":"c","name":"Ann"}])");
  EXPECT_EQ(text(with_messages(R"([{"role":"user","content":[]}])").messages),
            R"([{"role":"user","content":""}])");
  EXPECT_EQ(text(with_messages(R"([{"role":"user","content":null}])").messages),
            R"([{"role":"user"}])");
  EXPECT_EQ(
      text(with_messages(
               R"([{"role":"user","content":"c"},{"role":"assistant","content":null,"refusal":null,
                  "annotations":[],"audio":null,"function_call":null,"reasoning_content":"Hm.",
                  "tool_calls":[{"id":"1","type":"function","index":0,
                  "function":{"name":"f","arguments":"{\"z\": 1, \"a\": [2]}"}},
                  {"function":{"name":"g","arguments":""}}]},
                  {"role":"tool","tool_call_id":"1","content":"3"}])")
               .messages),
      R"([{"role":"user","content":"c"},{"role":"assistant","reasoning_content":"Hm.",)"
      R"("tool_calls":[{"id":"1","type":"function","index":0,"function":{"name":"f",)"
      R"("arguments":{"z":1,"a":[2]}}},{"function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"3"}])");
}

TEST(ChatRequest, ThinkingHasTheNameThatTemplatesKnow) {
  for (const std::string key : {"reasoning", "thinking"}) {
    EXPECT_EQ(with_messages(R"([{"role":"assistant","content":"a",")" + key + R"(":"Hm."}])")
                  .messages[0]["reasoning_content"],
              "Hm.");
  }
  const OrderedJson both =
      with_messages(R"([{"role":"assistant","reasoning":"b","reasoning_content":"a"}])").messages;
  EXPECT_EQ(both[0]["reasoning_content"], "a");
}

TEST(ChatRequest, ToolsKeepTheOrderOfTheirMembers) {
  const std::string tools =
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","a":1}}}])";
  EXPECT_EQ(text(accepted(body_of(R"("tools":)" + tools)).tools), tools);
  EXPECT_TRUE(accepted(body_of(R"("tool_choice":"none","tools":)" + tools)).tools.is_null());
  EXPECT_TRUE(accepted(body_of(R"("tools":[])")).tools.is_null());
}

TEST(ChatRequest, ASessionTakesASingleAnswer) {
  const ChatRequest request = accepted(body_of(R"("session":"s","n":1,"state":null,"position":3)"));
  EXPECT_EQ(request.answer.call.session, "s");
  EXPECT_EQ(request.answer.call.expected_position, 3);
  EXPECT_TRUE(request.may_call);
  EXPECT_FALSE(accepted(body_of(R"("session":"s","tool_choice":"none")")).may_call);
}

TEST(ChatRequest, SchemasNestToALimit) {
  const auto with_depth = [](int depth) {
    return body_of(R"("tools":[{"type":"function","function":{"name":"f","parameters":{"a":)" +
                   std::string(static_cast<size_t>(depth - 1), '[') +
                   std::string(static_cast<size_t>(depth - 1), ']') + "}}}]");
  };
  accepted(with_depth(32));
  ChatRequest request;
  EXPECT_THAT(read(with_depth(33), request).status.message(), HasSubstr("nested deeper than 36"));
}

struct Refusal {
  std::string body;
  std::string param;
  std::string message;  // a part of the message
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    ChatRequest request;
    const Fault fault = read(refusal.body, request);
    EXPECT_EQ(fault.status.code(), Code::kInvalidArgument) << refusal.body;
    EXPECT_EQ(fault.param, refusal.param) << refusal.body;
    EXPECT_THAT(fault.status.message(), StartsWith(refusal.param + " ")) << refusal.body;
    EXPECT_THAT(fault.status.message(), HasSubstr(refusal.message)) << refusal.body;
  }
}

TEST(ChatRequest, RefusalsNameTheMemberOfAMessageOrATool) {
  const auto message = [](const std::string& members) {
    return R"({"messages":[{"role":"user","content":"a"},{)" + members + "}]}";
  };
  const auto tool = [](const std::string& members) {
    return body_of(R"("tools":[{)" + members + "}]");
  };
  expect_refused({
      {"{}", "messages", "is not set"},
      {R"({"messages":[]})", "messages", "is empty"},
      {R"({"messages":"a"})", "messages", "expected a list"},
      {R"({"messages":[3]})", "messages[0]", "expected an object"},
      {message(R"("content":"a")"), "messages[1].role", "is not set"},
      {message(R"("role":"king","content":"a")"), "messages[1].role", "is 'king'"},
      {message(R"("role":"user")"), "messages[1].content", "is not set"},
      {message(R"("role":"user","content":3)"), "messages[1].content", "expected a text"},
      {message(R"("role":"user","content":[{"type":"image_url","image_url":{}}])"),
       "messages[1].content[0].type", "is 'image_url'"},
      {message(R"("role":"user","content":[{"type":"text"}])"), "messages[1].content[0].text",
       "is not set"},
      {message(R"("role":"user","content":"a","mood":1)"), "messages[1].mood", "leave it out"},
      {message(R"("role":"user","content":"a","tool_calls":[{}])"), "messages[1].tool_calls",
       "assistant"},
      {message(R"("role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}])"),
       "messages[1].tool_calls[0].function.arguments", "not valid JSON"},
      {message(R"("role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[]"}}])"),
       "messages[1].tool_calls[0].function.arguments", "expected a JSON object"},
      {message(R"("role":"assistant","tool_calls":[{"type":"custom"}])"),
       "messages[1].tool_calls[0].type", "'function'"},
      {message(R"("role":"assistant","tool_calls":[{"function":{}}])"),
       "messages[1].tool_calls[0].function.name", "is not set"},
      {tool(R"("type":"web")"), "tools[0].type", "is 'web'"},
      {tool(R"("type":"function")"), "tools[0].function", "must be an object"},
      {tool(R"("type":"function","function":{})"), "tools[0].function.name", "is not set"},
      {tool(R"("type":"function","function":{"name":"f","strict":true})"),
       "tools[0].function.strict", "not supported"},
      {tool(R"("type":"function","function":{"name":"f","parameters":[]})"),
       "tools[0].function.parameters", "expected an object"},
  });
}

TEST(ChatRequest, RefusalsNameTheField) {
  expect_refused({
      {body_of(R"("tool_choice":"required")"), "tool_choice", "only 'auto' and 'none'"},
      {body_of(R"("tool_choice":{"type":"function"})"), "tool_choice", "only 'auto' and 'none'"},
      {body_of(R"("functions":[])"), "functions", "send tools"},
      {body_of(R"("web_search_options":{})"), "web_search_options", "not supported"},
      {body_of(R"("audio":{})"), "audio", "not supported"},
      {body_of(R"("modalities":["audio"])"), "modalities", "[\"text\"]"},
      {body_of(R"("verbosity":"low")"), "verbosity", "\"medium\""},
      {body_of(R"("response_format":{"type":"json_object"})"), "response_format", "\"text\""},
      {body_of(R"("session":3)"), "session", "string"},
      {body_of(R"("session":"s","n":2)"), "n", "must be 1 with session"},
      {body_of(R"("session":"s","state":"t")"), "state", "cannot be combined with session"},
      {body_of(R"("chat_template":"x")"), "chat_template", "not taken"},
      {body_of(R"("chat_template_kwargs":{"messages":1})"), "chat_template_kwargs.messages",
       "not a variable"},
      {body_of(R"("chat_template_kwargs":{"eos_token":"a"})"), "chat_template_kwargs.eos_token",
       "not a variable"},
      {body_of(R"("chat_template_kwargs":{"chat_template":"a"})"),
       "chat_template_kwargs.chat_template", "not a variable"},
      {body_of(R"("chat_template_kwargs":{"a":[]})"), "chat_template_kwargs.a", "an array"},
      {body_of(R"("presence_penalty":"a")"), "presence_penalty", "number"},
      {body_of(R"("logit_bias":{"one":2})"), "logit_bias", "an object of numbers by token"},
      {body_of(R"("max_tokens":0)"), "max_tokens", "between 1"},
      {body_of(R"("max_tokens":1,"max_completion_tokens":2)"), "max_tokens", "differs"},
      {body_of(R"("logprobs":2)"), "logprobs", "true or false"},
      {body_of(R"("top_logprobs":2)"), "top_logprobs", "set logprobs"},
      {body_of(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "between 0 and 20"},
      {body_of(R"("reasoning_effort":"huge")"), "reasoning_effort", "is 'huge'"},
      {body_of(R"("continue_final_message":true)"), "continue_final_message", "assistant"},
      {body_of(R"("add_generation_prompt":false)"), "add_generation_prompt", "leave it out"},
      {body_of(R"("stop":["a","a","a","a","a","a","a","a","a"])"), "stop", "has 9 texts"},
      {body_of(R"("stop":")" + std::string(257, 'a') + '"'), "stop", "a text of 257 bytes"},
      {body_of(R"("mood":1)"), "mood", "not a field that this server knows"},
      {body_of(R"("prompt":"a")"), "prompt", "not a field that this server knows"},
  });
}

// All faults of a request are reported, so checks that depend on other fields see invalid ones.
TEST(ChatRequest, InvalidFinalMessagesAreRefusedWhenContinued) {
  for (const char* const message :
       {"1", "null", "[]", "{}", R"({"role":1,"content":"x"})", R"({"role":null,"content":"x"})",
        R"({"role":["assistant"],"content":"x"})", R"({"content":"x"})"}) {
    ChatRequest request;
    const std::string body =
        R"({"continue_final_message":true,"messages":[)" + std::string(message) + "]}";
    EXPECT_EQ(read(body, request).status.code(), Code::kInvalidArgument) << message;
  }
}

// Checks the properties of tests/fuzz.
TEST(RequestsFuzz, ChatProperties) {
  const int accepted = walk(chat_seeds(), Mutator(9, chat_words()), check_chat_request);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

}  // namespace
}  // namespace runnel
