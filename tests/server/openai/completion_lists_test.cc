// POST /v1/completions with a list of prompts, over real sockets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/fake_model.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRoom = 64;         // values in a stream of narrow_model()
constexpr int kManyValues = 300;  // more than a stream and an event have room for

Json list_request(const Json& prompts, int64_t tokens) {
  return {{"model", "fake"}, {"prompt", prompts}, {"max_tokens", tokens}, {"seed", 7}};
}

// A model whose streams have little room.
ServedModel narrow_model(int slots, const Spec& spec = byte_spec()) {
  EngineOptions options;
  options.stream_room = kRoom;
  return served_fake("fake", {}, options, {.slots = slots, .rows = 8, .values = 32, .steps = 1},
                     spec);
}

// Makes a session. It keeps its slot, because the server has no store.
void keep_session(const OpenAiServer& test) {
  const int64_t before = test.sessions_free();
  Json body = list_request({1}, 1);
  body["keep"] = true;
  const ApiAnswer answer = test.complete(body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_TRUE(eventually([&] { return test.sessions_free() == before - 1; }));
}

// Checks that every choice of a stream has the text of the whole answer, and ends.
void check_stream(const OpenAiServer& test, const Json& body) {
  const ApiAnswer whole = test.complete(body);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const std::vector<std::string> events = test.stream(body);
  ASSERT_FALSE(events.empty());
  ASSERT_EQ(events.back(), "[DONE]");
  std::vector<std::string> texts(whole.body["choices"].size());
  size_t ended = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json choice = Json::parse(events[i])["choices"][0];
    texts.at(choice["index"]) += choice["text"];
    if (!choice["finish_reason"].is_null()) ++ended;
  }
  EXPECT_EQ(ended, texts.size());
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(Json(texts[i]), whole.body["choices"][i]["text"]);
}

TEST(Completions, SeveralPromptsHaveTheirChoicesInOrder) {
  const OpenAiServer test;
  Json body = list_request({{3, 1}, {4}}, 5);
  body["n"] = 2;
  const ApiAnswer answer = test.complete(body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_EQ(answer.body["choices"].size(), 4U);
  for (int i = 0; i < 4; ++i) {
    const Json& choice = answer.body["choices"][i];
    EXPECT_EQ(choice["index"], i);
    const std::vector<int32_t> prompt = i < 2 ? std::vector{3, 1} : std::vector{4};
    EXPECT_EQ(choice["text"], bytes_of(expected_values(prompt, 5, i % 2)));
  }
  EXPECT_EQ(answer.body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer.body["usage"]["completion_tokens"], 20);
}

TEST(Completions, ARefusedPromptEndsAllPrompts) {
  const OpenAiServer test;
  Json body = list_request({{1}, {100}}, 100000);
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    EXPECT_EQ(test.complete(body).status, 400);
    EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
  }
}

TEST(Completions, MorePromptsThanStatesAreReadInTurns) {
  const OpenAiServer test;
  Json body = list_request(Json::array(), 5);
  body["n"] = 3;
  for (int i = 0; i < 20; ++i) body["prompt"].push_back({1, i});
  const ApiAnswer whole = test.complete(body);
  ASSERT_EQ(whole.status, 200) << whole.body;
  ASSERT_EQ(whole.body["choices"].size(), 60U);
  for (int i = 0; i < 60; ++i) {
    const Json& choice = whole.body["choices"][i];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["text"], bytes_of(expected_values({1, i / 3}, 5, i % 3))) << i;
  }
  EXPECT_EQ(whole.body["usage"]["completion_tokens"], 300);
  std::vector<std::string> streamed(60);
  for (const std::string& event : test.stream(body)) {
    if (event == "[DONE]") break;
    const Json choice = Json::parse(event)["choices"][0];
    streamed.at(choice["index"]) += choice["text"];
  }
  for (int i = 0; i < 60; ++i) EXPECT_EQ(Json(streamed[i]), whole.body["choices"][i]["text"]) << i;
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
}

TEST(Completions, APromptThatIsRefusedInItsTurnEndsTheAnswer) {
  const OpenAiServer test;
  Json body = list_request({{1}, {100}, {2}}, 5);
  body["n"] = 8;
  EXPECT_EQ(test.complete(body).error("param"), "prompt");
  const std::vector<std::string> events = test.stream(body);
  ASSERT_FALSE(events.empty());
  EXPECT_THAT(events.back(), StartsWith(R"({"error":)"));
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
}

// The prompts that run pause until the stream has begun. The last one waits until one has ended.
TEST(Completions, AStreamOfPromptsBeginsWhileOneWaits) {
  const OpenAiServer test({}, narrow_model(4));
  keep_session(test);
  Json body = list_request({{1}, {2}, {3}, {4}}, kManyValues);
  body["max_queue_time"] = 600;
  check_stream(test, body);
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 3; }));
}

// The empty prompt is not scored, so it runs at once, and the other one waits to be scored.
TEST(Completions, AStreamOfPromptsBeginsWhileOneWaitsToBeScored) {
  const OpenAiServer test({}, narrow_model(2, fake_spec(0, true)));
  keep_session(test);
  Json body = list_request(Json::array({"", "ab"}), kManyValues);
  body["echo"] = true;
  body["logprobs"] = 0;
  body["max_queue_time"] = 600;
  check_stream(test, body);
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 1; }));
}

TEST(Completions, APromptThatWaitsTooLongEndsAStreamThatHasBegun) {
  const OpenAiServer test({}, narrow_model(2));
  keep_session(test);
  Json body = list_request({{1}, {2}}, 1 << 19);
  body["max_queue_time"] = 0.05;
  const std::vector<std::string> events = test.stream(body);
  ASSERT_FALSE(events.empty());
  EXPECT_THAT(events.back(), StartsWith(R"({"error":)"));
  EXPECT_THAT(events.back(), HasSubstr("rate_limit_error"));
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 1; }));
}

TEST(Completions, AStreamDoesNotBeginWhileAllItsPromptsWait) {
  const OpenAiServer test({}, narrow_model(2));
  keep_session(test);
  keep_session(test);
  Json body = list_request({{1}, {2}}, 5);
  body["max_queue_time"] = 0.05;
  body["stream"] = true;
  const ApiAnswer refused = test.complete(body);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.error("code"), "sessions");
}

}  // namespace
}  // namespace runnel
