#include "server/openai/response_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fuzz/chat_properties.h"
#include "tests/fuzz/walk.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kMaxTokens = 4096;

Fault read(const std::string& body, ResponseRequest& request) {
  Result<OrderedJson> json = parse_chat_body(body);
  if (!json.ok()) return {json.status()};
  const auto recall = [](const std::string& id, OrderedJson& messages) -> Fault {
    if (id != "resp_1") {
      return {not_found("previous_response_id names no such response"), "previous_response_id"};
    }
    messages.push_back({{"role", "user"}, {"content", "How deep?"}});
    messages.push_back({{"role", "assistant"}, {"content", "Two."}});
    return {};
  };
  return read_response(std::move(*json), kMaxTokens, recall, request);
}

// A body with user input, and `more` fields.
std::string body_of(const std::string& more = "") {
  return R"({"input":"Hi")" + (more.empty() ? "" : "," + more) + "}";
}

ResponseRequest accepted(const std::string& body) {
  ResponseRequest request;
  const Fault fault = read(body, request);
  EXPECT_TRUE(fault.ok()) << body << "\n" << fault.status.message();
  return request;
}

std::string messages_of(const std::string& input, const std::string& more = "") {
  return json_text(accepted(R"({"input":)" + input + more + "}").chat.messages);
}

TEST(ResponseRequest, DefaultsMatchTheDocs) {
  const ResponseRequest request = accepted(body_of());
  EXPECT_EQ(request.chat.answer.call.max_values, kMaxTokens);
  EXPECT_EQ(request.chat.answer.call.samples, 1);
  EXPECT_FALSE(request.chat.answer.stream || request.chat.answer.logprobs || request.chat.one_call);
  EXPECT_TRUE(request.chat.tools.is_null());
  EXPECT_EQ(request.kept, R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(
      json_text(request.echo),
      R"({"instructions":null,"previous_response_id":null,"store":true,"tool_choice":"auto","parallel_tool_calls":true,"tools":[],)"
      R"("reasoning":{"effort":null,"summary":null},)"
      R"("text":{"format":{"type":"text"},"verbosity":"medium"},"metadata":{},)"
      R"("temperature":1.0,"top_p":1.0,"max_output_tokens":4096,"top_logprobs":0,)"
      R"("truncation":"disabled","background":false})");
}

TEST(ResponseRequest, FieldsAreTaken) {
  const ResponseRequest request = accepted(body_of(
      R"("model":"m","instructions":"Be brief.","max_output_tokens":7,"temperature":0,"top_p":0.5,
         "top_k":3,"seed":5,"presence_penalty":0.5,"logit_bias":{"3":-1},"stream":true,"stream_options":{"include_obfuscation":false},
         "parallel_tool_calls":false,"reasoning":{"effort":"low","summary":null},
         "text":{"format":{"type":"text"},"verbosity":"medium"},"metadata":{"a":"b"},
         "include":["message.output_text.logprobs"],"top_logprobs":4,"store":true,
         "background":false,"truncation":"disabled","user":"u","previous_response_id":null,
         "conversation":null,"max_tool_calls":3,"prompt_cache_options":{},"chat_template_kwargs":{"z":1})"));
  const AnswerRequest& answer = request.chat.answer;
  EXPECT_EQ(answer.model, "m");
  EXPECT_EQ(answer.call.max_values, 7);
  EXPECT_TRUE(answer.call.sampling.greedy && answer.stream && request.chat.one_call);
  EXPECT_EQ(answer.call.seed, 5U);
  ASSERT_NE(answer.call.penalties, nullptr);
  EXPECT_EQ(*answer.call.penalties, (Penalties{1.0F, 0.0F, 0.5F, {{3, -1.0F}}}));
  EXPECT_EQ(answer.logprobs, 4);
  EXPECT_EQ(json_text(request.chat.variables), R"({"reasoning_effort":"low","z":1})");
  EXPECT_EQ(json_text(request.chat.messages), R"([{"role":"system","content":"Be brief."},)"
                                              R"({"role":"user","content":"Hi"}])");
  EXPECT_EQ(json_text(request.echo["metadata"]), R"({"a":"b"})");
  EXPECT_EQ(request.echo["instructions"], "Be brief.");
  EXPECT_EQ(request.echo["reasoning"]["effort"], "low");
  EXPECT_EQ(request.echo["max_output_tokens"], 7);
  EXPECT_EQ(request.echo["top_p"], 0.5);
}

TEST(ResponseRequest, AnEarlierResponseComesBeforeTheInput) {
  const ResponseRequest request =
      accepted(body_of(R"("previous_response_id":"resp_1","instructions":"Be brief.")"));
  const std::string messages =
      R"({"role":"user","content":"How deep?"},{"role":"assistant","content":"Two."},)"
      R"({"role":"user","content":"Hi"}])";
  EXPECT_EQ(json_text(request.chat.messages),
            R"([{"role":"system","content":"Be brief."},)" + messages);
  EXPECT_EQ(request.kept, "[" + messages) << "instructions are each request's own";
  EXPECT_EQ(request.echo["previous_response_id"], "resp_1");
  EXPECT_EQ(accepted(body_of(R"("store":false)")).kept, "");
}

TEST(ResponseRequest, ItemsBecomeMessages) {
  EXPECT_EQ(messages_of(R"([{"role":"developer","content":"a"},
                            {"type":"message","role":"user","content":[
                             {"type":"input_text","text":"b"},{"type":"input_text","text":"c"}]}])"),
            R"([{"role":"developer","content":"a"},{"role":"user","content":[)"
            R"({"type":"text","text":"b"},{"type":"text","text":"c"}]}])");
}

// An answer of this server that the client sends back.
TEST(ResponseRequest, ItemsOfOneAnswerBecomeOneMessage) {
  const std::string answer = R"(
      {"type":"reasoning","id":"rs_1","summary":[],"status":"completed",
       "content":[{"type":"reasoning_text","text":"Hm."}]},
      {"type":"message","id":"msg_1","role":"assistant","status":"completed",
       "content":[{"type":"output_text","text":"Let me see.","annotations":[],"logprobs":[]}]},
      {"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{\"z\":1}",
       "status":"completed"},
      {"type":"function_call","call_id":"call_2","name":"g","arguments":"{}"},
      {"type":"function_call_output","call_id":"call_1","output":"3"},
      {"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"4"}]})";
  EXPECT_EQ(messages_of("[{\"role\":\"user\",\"content\":\"a\"}," + answer + "]"),
            R"([{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"Hm.",)"
            R"("content":[{"type":"text","text":"Let me see."}],"tool_calls":[)"
            R"({"id":"call_1","type":"function","function":{"name":"f","arguments":{"z":1}}},)"
            R"({"id":"call_2","type":"function","function":{"name":"g","arguments":{}}}]},)"
            R"({"role":"tool","tool_call_id":"call_1","content":"3"},)"
            R"({"role":"tool","tool_call_id":"call_2","content":[{"type":"text","text":"4"}]}])");
}

TEST(ResponseRequest, MessagesOfTheAssistantStayApart) {
  EXPECT_EQ(messages_of(R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},
                            {"type":"reasoning","summary":[{"type":"summary_text","text":"c"}]}])"),
            R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"assistant","reasoning_content":"c"}])");
}

TEST(ResponseRequest, ToolsAreTakenAndRepeated) {
  const ResponseRequest request = accepted(body_of(
      R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":null}])"));
  EXPECT_EQ(json_text(request.chat.tools),
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(json_text(request.echo["tools"]),
            R"([{"type":"function","parameters":{"type":"object"},"strict":false,"name":"f"}])");
  const ResponseRequest none =
      accepted(body_of(R"("tools":[{"type":"function","name":"f"}],"tool_choice":"none")"));
  EXPECT_TRUE(none.chat.tools.is_null());
  EXPECT_EQ(none.echo["tools"].size(), 1U);
}

TEST(ResponseRequest, RefusalsNameTheMember) {
  struct Refusal {
    std::string body, param, message;
  };
  const auto item = [](const std::string& members) { return R"({"input":[{)" + members + "}]}"; };
  const std::vector<Refusal> refusals = {
      {"{}", "input", "is not set"},
      {R"({"input":[]})", "input", "is empty"},
      {R"({"input":{}})", "input", "expected a text or a list"},
      {R"({"input":[3]})", "input[0]", "expected an object"},
      {item(R"("type":"item_reference","id":"a")"), "input[0].type", "expected 'message'"},
      {item(R"("role":"king","content":"a")"), "input[0].role", "expected 'user'"},
      {item(R"("role":"user")"), "input[0].content", "is not set"},
      {item(R"("role":"user","content":[{"type":"input_image"}])"), "input[0].content[0].type",
       "send parts of type 'input_text'"},
      {item(R"("role":"user","content":"a","x":1)"), "input[0].x", "not a field"},
      {item(R"("type":"function_call","name":"f","arguments":"{}")"), "input[0].call_id",
       "is not set"},
      {item(R"("type":"function_call","name":"f","call_id":"a","arguments":"[")"),
       "input[0].arguments", "no JSON object"},
      {item(R"("type":"function_call_output","call_id":"a")"), "input[0].output", "is not set"},
      {item(R"("type":"reasoning","encrypted_content":"x")"), "input[0].encrypted_content",
       "not a field"},
      {item(R"("type":"reasoning","content":"x")"), "input[0].content", "expected a list"},
      {body_of(R"("tools":[{"type":"web_search"}])"), "tools[0].type", "expected 'function'"},
      {body_of(R"("tools":[{"type":"function","name":"f","strict":true}])"), "tools[0].strict",
       "not supported"},
      {body_of(R"("tool_choice":"required")"), "tool_choice", "only 'auto' and 'none'"},
      {body_of(R"("conversation":"c")"), "conversation", "not supported"},
      {body_of(R"("background":true)"), "background", "send false"},
      {body_of(R"("truncation":"auto")"), "truncation", "not supported"},
      {body_of(R"("include":["reasoning.encrypted_content"])"), "include", "only"},
      {body_of(R"("top_logprobs":2)"), "top_logprobs", "include"},
      {body_of(R"("reasoning":{"effort":"huge"})"), "reasoning.effort", "expected 'none'"},
      {body_of(R"("reasoning":{"summary":"auto"})"), "reasoning.summary", "not supported"},
      {body_of(R"("text":{"format":{"type":"json_object"}})"), "text.format", "not supported"},
      {body_of(R"("metadata":{"a":1})"), "metadata", "16 texts"},
      {body_of(R"("max_output_tokens":0)"), "max_output_tokens", "between 1"},
      {body_of(R"("stream_options":{})"), "stream_options", "set stream"},
      {body_of(R"("stream":true,"stream_options":{"include_usage":true})"),
       "stream_options.include_usage", "not a field"},
      {body_of(R"("n":2)"), "n", "not a field"},
      {body_of(R"("messages":[])"), "messages", "not a field"},
  };
  for (const Refusal& refusal : refusals) {
    ResponseRequest request;
    const Fault fault = read(refusal.body, request);
    EXPECT_EQ(fault.status.code(), Code::kInvalidArgument) << refusal.body;
    EXPECT_EQ(fault.param, refusal.param) << refusal.body;
    EXPECT_THAT(fault.status.message(), StartsWith(refusal.param + " ")) << refusal.body;
    EXPECT_THAT(fault.status.message(), HasSubstr(refusal.message)) << refusal.body;
  }
}

// Checks the properties of tests/fuzz.
TEST(RequestsFuzz, ResponseProperties) {
  const int accepted = walk(response_seeds(), Mutator(9, chat_words()), check_response_request);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

}  // namespace
}  // namespace runnel
