// POST /v1/responses over real sockets, with a model that writes bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "server/openai/response_output.h"
#include "tests/base/eventually.h"
#include "tests/server/openai/chat_models.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kResponsesPath = "/v1/responses";

Json request(int64_t tokens) {
  return {{"input", "HI"}, {"max_output_tokens", tokens}, {"seed", 7}};
}

Json chat(const OpenAiServer& test, Json body) {
  body["messages"] = {{{"role", "user"}, {"content", "HI"}}};
  body["max_tokens"] = body["max_output_tokens"];
  body.erase("input");
  body.erase("max_output_tokens");
  return test.post("/v1/chat/completions", body).body["choices"][0];
}

// The events of a stream. Checks that they are numbered, and that each is named by its type.
std::vector<Json> events_of(const OpenAiServer& test, const Json& body) {
  std::vector<Json> events;
  for (const std::string& text : test.stream(body, kResponsesPath)) {
    events.push_back(Json::parse(text));
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
  }
  return events;
}

std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) {
    if (types.empty() || event["type"] != types.back()) types.push_back(event["type"]);
  }
  return types;
}

// The joined deltas of each item equal the whole item.
void expect_deltas_make_items(const std::vector<Json>& events) {
  const Json& output = events.back()["response"]["output"];
  std::vector<std::string> texts(output.size());
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type.ends_with(".delta")) texts[event["output_index"]] += event["delta"];
    if (type == "response.output_item.done") {
      EXPECT_EQ(event["item"], output[event["output_index"].get<size_t>()]);
    }
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const Json& item = output[i];
    EXPECT_EQ(Json(texts[i]),
              item["type"] == "function_call" ? item["arguments"] : item["content"][0]["text"]);
  }
}

TEST(Response, AnAnswerEqualsThatOfTheChat) {
  const OpenAiServer test({}, chat_model());
  const ApiAnswer answer = test.post(kResponsesPath, request(20));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& body = answer.body;
  EXPECT_EQ(body["object"], "response");
  EXPECT_THAT(body["id"].get<std::string>(), StartsWith("resp_"));
  EXPECT_EQ(body["model"], "fake");
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"], Json({{"reason", "max_output_tokens"}}));
  EXPECT_EQ(body["error"], Json());
  EXPECT_EQ(body["max_output_tokens"], 20);
  EXPECT_EQ(body["store"], true);
  ASSERT_EQ(body["output"].size(), 1U);
  Json item = body["output"][0];
  EXPECT_THAT(item["id"].get<std::string>(), StartsWith("msg_"));
  item.erase("id");
  const Json text = chat(test, request(20))["message"]["content"];
  EXPECT_EQ(item, Json({{"type", "message"},
                        {"role", "assistant"},
                        {"status", "incomplete"},
                        {"content",
                         {{{"type", "output_text"},
                           {"text", text},
                           {"annotations", Json::array()},
                           {"logprobs", Json::array()}}}}}));
  EXPECT_EQ(body["usage"],
            Json({{"input_tokens", 9},
                  {"input_tokens_details", {{"cached_tokens", 0}, {"cache_write_tokens", 0}}},
                  {"output_tokens", 20},
                  {"output_tokens_details", {{"reasoning_tokens", 0}}},
                  {"total_tokens", 29}}));
}

TEST(Response, AStreamReportsHowTheAnswerGrows) {
  const OpenAiServer test({}, chat_model());
  const std::vector<Json> events = events_of(test, request(60));
  EXPECT_THAT(types_of(events),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.incomplete"));
  expect_deltas_make_items(events);
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[0]["response"]["output"], Json::array());
  const Json whole = test.post(kResponsesPath, request(60)).body;
  const Json& last = events.back()["response"];
  EXPECT_EQ(last["output"][0]["content"], whole["output"][0]["content"]);
  EXPECT_EQ(last["usage"], whole["usage"]);
  EXPECT_EQ(last["id"], events[0]["response"]["id"]);
}

TEST(Response, AnEndOfATurnCompletesTheResponse) {
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of("x\n[U]")));
  const Json answer = test.post(kResponsesPath, request(9)).body;
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["incomplete_details"], Json());
  EXPECT_EQ(answer["output"][0]["status"], "completed");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "x");
  EXPECT_EQ(types_of(events_of(test, request(9))).back(), "response.completed");
}

TEST(Response, LogProbsAreThoseOfTheContent) {
  const OpenAiServer test({}, chat_model());
  Json body = request(12);
  body["include"] = {"message.output_text.logprobs"};
  body["top_logprobs"] = 2;
  Json plain = request(12);
  plain["logprobs"] = true;
  plain["top_logprobs"] = 2;
  const Json expected = chat(test, plain)["logprobs"]["content"];
  EXPECT_EQ(expected.size(), 12U);
  EXPECT_EQ(test.post(kResponsesPath, body).body["output"][0]["content"][0]["logprobs"], expected);
  Json told = Json::array();
  for (const Json& event : events_of(test, body)) {
    if (event["type"] == "response.output_text.done") {
      EXPECT_EQ(event["logprobs"], expected);
    }
    if (event["type"] != "response.output_text.delta") continue;
    for (const Json& entry : event["logprobs"]) told.push_back(entry);
  }
  EXPECT_EQ(told, expected);
}

// The tokens of a message's content.
std::string tokens_of(const Json& item) {
  std::string tokens;
  for (const Json& entry : item["content"][0]["logprobs"]) tokens += entry["token"];
  return tokens;
}

// The text is "a<>b", and "<>" is a call.
TEST(Response, LogProbsOfTheContentLeaveOutCalls) {
  const auto token = [](int32_t value, int64_t begin) {
    ChoiceToken made;
    made.value = value;
    made.begin = begin;
    return made;
  };
  ResponseOutput output({.model = "m", .tokenizer = Tokenizer::of_bytes(), .logprobs = true});
  output.add_tokens({token('a', 0), token('<', 1), token('>', 2), token('b', 3)});
  output.say(ChatEvent::Kind::kContent, "a", 1);
  output.call(AnsweredToolCall({"f", "{}"}), 3);
  output.say(ChatEvent::Kind::kContent, "b", 4);
  output.finish(true, "");
  const Json items = Json::parse(output.whole({}))["output"];
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(tokens_of(items[0]), "a");
  EXPECT_EQ(items[1]["type"], "function_call");
  EXPECT_EQ(tokens_of(items[2]), "b");
}

// The first value is delivered at once, and the others in one run.
TEST(Response, LogProbsLeaveOutACallThatArrivesWithTheContent) {
  const std::vector<std::string> parts = {
      "a", "b", R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)", "c"};
  const std::string prompt = "[U]HI\n[A]";
  const std::vector<int32_t> values = expected_values({prompt.begin(), prompt.end()}, 4);
  std::vector<std::string> texts(100);
  for (size_t i = 0; i < parts.size(); ++i) texts[static_cast<size_t>(values[i])] = parts[i];
  OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of(texts)));
  test.state.delivery = {.max_values = 16, .max_delay = std::chrono::minutes(1)};
  Json body = request(4);
  body["include"] = {"message.output_text.logprobs"};
  body["tools"] = {{{"type", "function"}, {"name", "f"}}};
  const Json items = test.post(kResponsesPath, body).body["output"];
  ASSERT_EQ(items.size(), 3U) << items;
  EXPECT_EQ(items[0]["content"][0]["text"], "ab");
  EXPECT_EQ(tokens_of(items[0]), "ab");
  EXPECT_EQ(items[1]["type"], "function_call");
  EXPECT_EQ(items[2]["content"][0]["text"], "c");
  EXPECT_EQ(tokens_of(items[2]), "c");
}

TEST(Response, ThinkingIsAnItem) {
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of("<think>a</think>b")));
  Json body = request(2);
  body["include"] = {"message.output_text.logprobs"};
  const Json answer = test.post(kResponsesPath, body).body;
  ASSERT_EQ(answer["output"].size(), 2U);
  EXPECT_EQ(answer["output"][0]["type"], "reasoning");
  EXPECT_EQ(answer["output"][0]["status"], "completed");
  EXPECT_EQ(answer["output"][0]["summary"], Json::array());
  EXPECT_EQ(answer["output"][0]["content"], Json({{{"type", "reasoning_text"}, {"text", "a"}}}));
  EXPECT_EQ(answer["output"][1]["content"][0]["text"], "b<think>a</think>b");
  EXPECT_EQ(answer["output"][1]["content"][0]["logprobs"].size(), 1U);
  EXPECT_EQ(answer["usage"]["output_tokens_details"]["reasoning_tokens"], 1);
  const std::vector<Json> events = events_of(test, body);
  expect_deltas_make_items(events);
  EXPECT_THAT(types_of(events),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.reasoning_text.delta",
                          "response.reasoning_text.done", "response.content_part.done",
                          "response.output_item.done", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.incomplete"));
}

TEST(Response, CallsAreItems) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"z": 1, "a": 2}}</tool_call>)";
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of(call)));
  Json body = request(2);
  body["tools"] = {{{"type", "function"}, {"name", "f"}}};
  const Json answer = test.post(kResponsesPath, body).body;
  ASSERT_EQ(answer["output"].size(), 2U);
  const Json& made = answer["output"][0];
  EXPECT_EQ(made["type"], "function_call");
  EXPECT_THAT(made["call_id"].get<std::string>(), StartsWith("call_"));
  EXPECT_THAT(made["id"].get<std::string>(), StartsWith("fc_"));
  EXPECT_EQ(made["name"], "f");
  EXPECT_EQ(made["arguments"], R"({"z":1,"a":2})");
  body["parallel_tool_calls"] = false;
  const std::vector<Json> events = events_of(test, body);
  expect_deltas_make_items(events);
  EXPECT_THAT(
      types_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[4]["name"], "f");
  // The client sends back the answer and the call's result.
  body["input"] = {{{"role", "user"}, {"content", "HI"}},
                   events.back()["response"]["output"][0],
                   {{"type", "function_call_output"},
                    {"call_id", events.back()["response"]["output"][0]["call_id"]},
                    {"output", "3"}}};
  EXPECT_EQ(test.post(kResponsesPath, body).status, 200);
}

TEST(Response, ASingleToolCallCompletesTheResponse) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of(call)));
  constexpr int64_t kMost = 60'000;  // far more than a stream buffers for a slow reader
  Json body = request(kMost);
  body["tools"] = {{{"type", "function"}, {"name", "f"}}};
  body["parallel_tool_calls"] = false;
  const Json answer = test.post(kResponsesPath, body).body;
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"].size(), 1U);
  EXPECT_LT(answer["usage"]["output_tokens"], kMost);
}

// A stream at `path` whose model waits before its ninth step until this object ends.
class WaitingStream {
 public:
  WaitingStream(const std::string& path, Json body) {
    body["stream"] = true;
    client_.send(OpenAiServer::request("POST", path, body.dump()));
    EXPECT_EQ(client_.read(15), "HTTP/1.1 200 OK");
    client_.read(300);  // the rest of the head, and a part of the first event
    EXPECT_TRUE(eventually([&] { return steps_ > kSteps && held() < kReading; }));
  }
  ~WaitingStream() { end_.count_down(); }
  WaitingStream(const WaitingStream&) = delete;
  WaitingStream& operator=(const WaitingStream&) = delete;

  // The bytes of memory that the stream holds.
  int64_t held() const { return server_.state.memory.held(); }

 private:
  static constexpr int kSteps = 8;
  static constexpr int64_t kReading = 16 << 20;  // less than a conversation takes while it is read

  ServedModel make_model() {
    ServedModel model = served_fake("fake", [this] {
      if (++steps_ > kSteps) end_.wait();
    });
    model.tokenizer = Tokenizer::of_bytes();
    model.chat = ChatFormat::make({.source = kChatTemplate, .name = "t"}, model.tokenizer).value();
    return model;
  }

  std::atomic<int> steps_{0};
  std::latch end_{1};
  const OpenAiServer server_{OpenAiServer::Options(), make_model()};
  HttpClient client_ = server_.client();
};

// The least of many measurements, because events that are on their way hold memory for a moment.
int64_t least_held(const WaitingStream& stream) {
  int64_t least = stream.held();
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    least = std::min(least, stream.held());
  }
  return least;
}

// Whether a stream whose request also has `fields` holds at least `bytes` more.
bool holds_more(const std::string& path, const Json& plain, const Json& fields, int64_t bytes) {
  Json body = plain;
  body.update(fields);
  const int64_t with_fields = least_held(WaitingStream(path, body));
  const WaitingStream without(path, plain);
  return eventually([&] { return without.held() + bytes <= with_fields; });
}

TEST(Response, WhatARequestKeepsIsCountedUntilItsAnswerEnds) {
  const std::string text(30'000, 'x');
  // The answer repeats it: in the first events of a stream, and in the last one.
  EXPECT_TRUE(holds_more(kResponsesPath, request(100), {{"metadata", {{"a", text}}}}, 150'000));
  const Json plain = {
      {"messages", {{{"role", "user"}, {"content", "HI"}}}}, {"max_tokens", 100}, {"seed", 7}};
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}, {"description", text}}}};
  const Json tools = {{"tools", Json::array({tool})}};
  EXPECT_TRUE(holds_more("/v1/chat/completions", plain, tools, 25'000));
}

TEST(Response, AStreamThatFailsEndsWithAnEvent) {
  OpenAiServer test({}, chat_model());
  Json body = request(1 << 19);
  body["stream"] = true;
  HttpClient one = test.client();
  one.send(OpenAiServer::request("POST", kResponsesPath, body.dump(), "Connection: close\r\n"));
  std::string text = one.read(4096);  // the server still holds the rest
  test.state.calls.end_all({Code::kUnavailable, "the server is shutting down"});
  text += one.read_all();
  EXPECT_THAT(text, HasSubstr("event: response.created\n"));
  EXPECT_THAT(text, HasSubstr("event: response.failed\n"));
  EXPECT_THAT(text, HasSubstr(R"("code":"server_error","message":"the server is shutting down")"));
}

TEST(Response, RefusalsUseTheFieldNamesOfTheEndpoint) {
  const OpenAiServer test({}, chat_model());
  Json body = request(5);
  body["input"] = "~";  // not a value of the model
  EXPECT_EQ(test.post(kResponsesPath, body).error("param"), "input");
  body = request(int64_t{1} << 39);
  EXPECT_EQ(test.post(kResponsesPath, body).error("param"), "max_output_tokens");
  body = request(5);
  body["model"] = "other";
  EXPECT_EQ(test.post(kResponsesPath, body).error("code"), "model_not_found");
  body = request(5);
  body["previous_response_id"] = "resp_1";
  const ApiAnswer unknown = test.post(kResponsesPath, body);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error("param"), "previous_response_id");
  EXPECT_EQ(unknown.error("code"), "previous_response_not_found");
}

TEST(Response, ALaterRequestContinuesAnAnswer) {
  const OpenAiServer test({}, chat_model(kChatTemplate, tokenizer_of("x\n[U]")));
  Json body = request(9);
  body["instructions"] = "BE BRIEF";
  const Json first = test.post(kResponsesPath, body).body;
  Json next = request(9);
  next["input"] = "AND?";
  next["previous_response_id"] = first["id"];
  // Both branches continue the same answer, without its instructions.
  for (const bool streams : {false, true}) {
    const Json answer =
        streams ? events_of(test, next).back()["response"] : test.post(kResponsesPath, next).body;
    ASSERT_EQ(answer["status"], "completed") << answer;
    EXPECT_EQ(answer["previous_response_id"], first["id"]);
    Json whole = request(9);
    whole["input"] = {{{"role", "user"}, {"content", "HI"}},
                      first["output"][0],
                      {{"role", "user"}, {"content", "AND?"}}};
    const Json expected = test.post(kResponsesPath, whole).body;
    EXPECT_EQ(answer["usage"]["input_tokens"], expected["usage"]["input_tokens"]);
    EXPECT_EQ(answer["output"][0]["content"], expected["output"][0]["content"]);
    Json third = request(9);
    third["previous_response_id"] = answer["id"];
    EXPECT_GT(test.post(kResponsesPath, third).body["usage"]["input_tokens"],
              answer["usage"]["input_tokens"]);
  }
}

// The prefix cache has the rest of the conversation.
TEST(Response, ALaterRequestReadsOnlyTheNewItems) {
  EngineOptions options;
  options.prefix_cache_bytes = 1 << 20;
  const OpenAiServer test({}, chat_model(kChatTemplate, Tokenizer::of_bytes(), options));
  Json body = request(6);
  body["input"] = "WHAT IS IT THAT RUNS?";
  const Json first = test.post(kResponsesPath, body).body["usage"];
  EXPECT_EQ(first["input_tokens_details"]["cached_tokens"], 0);
  body["previous_response_id"] = test.post(kResponsesPath, body).body["id"];
  const Json second = test.post(kResponsesPath, body).body["usage"];
  // All except the line feed before the generation prompt "[A]", which could merge with other text.
  EXPECT_GE(second["input_tokens_details"]["cached_tokens"].get<int64_t>(),
            first["input_tokens"].get<int64_t>() - 4);
  EXPECT_GT(second["input_tokens"], first["total_tokens"]);
}

TEST(Response, IsKeptForAnHourAfterItsLastUse) {
  Clock clock{TimePoint(std::chrono::seconds(1000))};
  const OpenAiServer test(OpenAiServer::Options{.clock = clock}, chat_model());
  const Json answer = test.post(kResponsesPath, request(5)).body;
  EXPECT_EQ(answer["created_at"], 1000);
  const std::string path = kResponsesPath + "/" + answer["id"].get<std::string>();
  const ApiAnswer first = test.get(path);
  EXPECT_EQ(first.status, 200);
  EXPECT_THAT(first.head, HasSubstr("Date: Thu, 01 Jan 1970 00:16:40 GMT\r\n"));
  clock.advance(std::chrono::minutes(59));
  EXPECT_EQ(test.get(path).status, 200);
  clock.advance(std::chrono::minutes(59));
  EXPECT_EQ(test.get(path).status, 200);
  clock.advance(std::chrono::hours(1));
  EXPECT_EQ(test.get(path).status, 404);
}

TEST(Response, AStoredResponseIsThereUntilItIsDeleted) {
  const OpenAiServer test({}, chat_model());
  const Json answer = test.post(kResponsesPath, request(5)).body;
  const std::string path = kResponsesPath + "/" + answer["id"].get<std::string>();
  EXPECT_EQ(test.get(path).body, answer);
  const auto remove = [&] { return test.ask(OpenAiServer::request("DELETE", path)); };
  EXPECT_EQ(remove().body, Json({{"id", answer["id"]}, {"object", "response"}, {"deleted", true}}));
  EXPECT_EQ(remove().status, 404);
  EXPECT_EQ(test.get(path).status, 404);
  Json body = request(5);
  body["store"] = false;
  const Json forgotten = test.post(kResponsesPath, body).body;
  EXPECT_EQ(forgotten["store"], false);
  EXPECT_EQ(test.get(kResponsesPath + "/" + forgotten["id"].get<std::string>()).status, 404);
}

}  // namespace
}  // namespace runnel
