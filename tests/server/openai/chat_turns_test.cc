// Long conversations with a real model. If a client sends the whole conversation every turn,
// answers from the cache have the bits of answers without it, and each turn reads only the new
// messages. On a session, all turns are one sequence.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/template/chat_format.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/openai/chat_models.h"
#include "tests/server/openai/openai_server.h"
#include "tests/server/test_models.h"

namespace runnel {
namespace {

constexpr int kTurns = 50;
// Starts an answer with its reasoning, and omits that of earlier answers, as most templates do.
const std::string kLeavesThinkingOut =
    "{% for m in messages %}[{{ m.role[0] | upper }}]{{ m.content.split('</think>')[-1] }}{{ '\n' "
    "}}"
    "{% endfor %}{% if add_generation_prompt %}[A]<think>{% endif %}";
const std::string kKeepsAll =
    "{% for m in messages %}[{{ m.role[0] | upper }}]{{ m.content }}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}[A]{% endif %}";

ServedModel model_of(const std::string& source, int64_t prefix_cache_bytes) {
  Spec spec = small_rwkv7_spec();
  spec.vocabulary = spec.head.values = 128;  // the values of ASCII
  std::get<Rwkv7Spec>(spec.model).table_rows = 128;
  EngineOptions options;
  options.prefix_cache_bytes = prefix_cache_bytes;
  ServedModel model = served_bundle(spec, 5, options);
  model.tokenizer = Tokenizer::of_bytes();
  model.chat = ChatFormat::make({.source = source, .name = "t"}, model.tokenizer).value();
  return model;
}

class ResentTurns : public ::testing::TestWithParam<std::pair<const char*, std::string>> {};

TEST_P(ResentTurns, FiftyCachedTurnsEqualUncachedOnesAndReadOnlyTheNewPart) {
  const std::string& source = GetParam().second;
  const OpenAiServer warm({}, model_of(source, 1 << 24)), cold({}, model_of(source, 0));
  Json body = {{"messages", Json::array()},
               {"max_completion_tokens", 12},
               {"seed", 3},
               {"logprobs", true},
               {"return_token_ids", true}};
  int64_t before = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::string question = "WHAT RUNS, TURN " + std::to_string(turn) + "?";
    body["messages"].push_back({{"role", "user"}, {"content", question}});
    const Json answer = warm.post(kChatPath, body).body, other = cold.post(kChatPath, body).body;
    ASSERT_EQ(answer["choices"], other["choices"]) << turn;
    const Json& usage = answer["usage"];
    const int64_t prompt = usage["prompt_tokens"];
    const int64_t cached = usage["prompt_tokens_details"]["cached_tokens"];
    EXPECT_EQ(other["usage"]["prompt_tokens"], prompt);
    EXPECT_EQ(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    // The new messages, and twice the generation prompt with the token before it.
    if (turn > 0) {
      EXPECT_LE(prompt - cached, prompt - before + 24) << turn;
    }
    before = prompt;
    const Json& content = answer["choices"][0]["message"]["content"];
    body["messages"].push_back(
        {{"role", "assistant"}, {"content", content.is_null() ? "" : content.get<std::string>()}});
  }
  EXPECT_GT(before, kTurns * 20);
}

INSTANTIATE_TEST_SUITE_P(
    , ResentTurns,
    ::testing::Values(std::pair<const char*, std::string>("ThinkingIsLeftOut", kLeavesThinkingOut),
                      std::pair<const char*, std::string>("AllIsKept", kKeepsAll)),
    [](const auto& info) { return info.param.first; });

TEST(ChatTurns, TurnsOfASessionAreOneSequence) {
  const OpenAiServer test({}, model_of(kKeepsAll, 0)), other({}, model_of(kKeepsAll, 0));
  ASSERT_EQ(test.post("/v1/sessions", {{"id", "talk"}}).status, 200);
  std::vector<int32_t> read;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::string question = "WHAT RUNS, TURN " + std::to_string(turn) + "?";
    const Json answer =
        test.post(kChatPath, {{"session", "talk"},
                              {"messages", {{{"role", "user"}, {"content", question}}}},
                              {"max_completion_tokens", 12},
                              {"seed", 3},
                              {"return_token_ids", true}})
            .body;
    const std::string given = (turn == 0 ? "[U]" : "\n[U]") + question + "\n[A]";
    EXPECT_EQ(answer["usage"]["prompt_tokens"], given.size()) << turn;
    read.insert(read.end(), given.begin(), given.end());
    const Json whole =
        other
            .complete(
                {{"prompt", read}, {"max_tokens", 12}, {"seed", 3}, {"return_token_ids", true}})
            .body;
    const std::vector<int32_t> said = answer["choices"][0]["token_ids"];
    ASSERT_EQ(Json(said), whole["choices"][0]["token_ids"]) << turn;
    read.insert(read.end(), said.begin(), said.end());
    EXPECT_EQ(answer["choices"][0]["position"], read.size()) << turn;
  }
}

}  // namespace
}  // namespace runnel
