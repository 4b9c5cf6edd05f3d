// State tokens in completions: a sequence continues without a session.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "models/state/seal.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

ServedModel text_model() { return served_bundle(small_text_spec(), 1); }

// A server with the seal key that all servers here share.
std::unique_ptr<OpenAiServer> sealed_server() {
  auto test = std::make_unique<OpenAiServer>(OpenAiServer::Options{}, text_model());
  test->state.seal_keys = SealKeys{make_seal_key(std::string(32, 's'))};
  return test;
}

// The choice of a completion after `token`. If it is null, the prompt starts a sequence.
Json next_choice(const OpenAiServer& test, const Json& token, const char* prompt) {
  const ApiAnswer answer = test.complete({{"state_token", token},
                                          {"include_state", true},
                                          {"prompt", prompt},
                                          {"max_tokens", 5},
                                          {"seed", 7},
                                          {"return_token_ids", true},
                                          {"ignore_eos", true}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.body["choices"][0];
}

TEST(CompletionTokens, ASequenceContinuesOnAnotherServerAsInASession) {
  const auto one = sealed_server();
  const auto two = sealed_server();
  EXPECT_EQ(one->post("/v1/sessions", {{"id", "a"}}).status, 200);
  Json token;
  for (const char* const prompt : {"ab", "c", "ba"}) {
    const ApiAnswer expected = one->complete({{"session", "a"},
                                              {"prompt", prompt},
                                              {"max_tokens", 5},
                                              {"seed", 7},
                                              {"return_token_ids", true},
                                              {"ignore_eos", true}});
    ASSERT_EQ(expected.status, 200) << expected.body;
    const Json found = next_choice(token.is_null() ? *one : *two, token, prompt);
    EXPECT_EQ(found["token_ids"], expected.body["choices"][0]["token_ids"]);
    EXPECT_EQ(found["position"], expected.body["choices"][0]["position"]);
    EXPECT_FALSE(found.contains("session"));
    token = found["state_token"];
    ASSERT_TRUE(token.is_string());
  }
  EXPECT_TRUE(eventually([&] { return two->sessions_free() == kTestLimits.slots; }));
  EXPECT_TRUE(eventually([&] { return two->state.memory.held() == 0; }));
}

TEST(CompletionTokens, AStreamEndsWithItsToken) {
  const auto test = sealed_server();
  const auto events = test->stream({{"prompt", "ab"}, {"max_tokens", 5}, {"include_state", true}});
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(events.back(), "[DONE]");
  const Json last = Json::parse(events[events.size() - 2])["choices"][0];
  EXPECT_TRUE(last["finish_reason"].is_string());
  EXPECT_EQ(next_choice(*test, last["state_token"], "c")["index"], 0);
}

TEST(CompletionTokens, InvalidRequestsAreRefused) {
  const auto test = sealed_server();
  const Json token = next_choice(*test, nullptr, "ab")["state_token"];
  const auto refusal = [&](Json body) {
    body["state_token"] = body.value("state_token", token);
    return test->complete(body);
  };
  EXPECT_EQ(refusal({{"state_token", "a b"}}).error("param"), "state_token");
  EXPECT_EQ(refusal({{"state_token", "Zm9v"}}).status, 400);
  EXPECT_EQ(refusal({{"state_token", "Zm9v"}}).error("param"), "state_token");
  EXPECT_EQ(refusal({{"prompt", {"a", "b"}}}).error("param"), "state_token");
  EXPECT_EQ(refusal({{"prompt", "a"}, {"echo", true}, {"logprobs", 1}}).error("param"),
            "state_token");
  EXPECT_EQ(refusal({{"prompt", "a"}, {"session", "a"}}).error("param"), "session");
  EXPECT_EQ(refusal({{"prompt", "a"}, {"keep", true}}).error("param"), "keep");
  EXPECT_EQ(refusal({{"prompt", "a"}, {"n", 2}, {"include_state", true}}).error("param"), "n");
  EXPECT_EQ(refusal({{"prompt", "a"}, {"position", 1}}).status, 409);
  const OpenAiServer plain(OpenAiServer::Options{}, text_model());
  const ApiAnswer none = plain.complete({{"prompt", "a"}, {"include_state", true}});
  EXPECT_EQ(none.status, 400);
  EXPECT_EQ(none.error("param"), "include_state");
  EXPECT_THAT(none.error("message"), HasSubstr("start it with --seal-keys"));
}

}  // namespace
}  // namespace runnel
