#include "server/openai/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai/chat_sample.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;

// A run with one value for each text, counting up from `first`.
ValueRun run_of(const std::vector<std::string>& texts, int32_t first = 0) {
  ValueRun run;
  for (const std::string& text : texts) {
    run.values.push_back(first++);
    run.log_probs.push_back(-1.0F);
    run.text += text;
    run.text_ends.push_back(static_cast<int32_t>(run.text.size()));
  }
  return run;
}

std::vector<int32_t> values_in(const ChoicePart& part) {
  std::vector<int32_t> values;
  for (const ChoiceToken& token : part.tokens) values.push_back(token.value);
  return values;
}

TEST(CompletionChoice, HoldsBackTextThatMayBecomeAStopText) {
  const std::vector<std::string> stops = {"abc", "cd"};
  CompletionChoice choice(stops, true);
  choice.add(run_of({"x", "a", "b"}));
  const ChoicePart first = choice.take();
  EXPECT_EQ(first.text, "x");
  EXPECT_THAT(values_in(first), ElementsAre(0));
  choice.add(run_of({"x"}, 3));
  EXPECT_EQ(choice.take().text, "abx");
  choice.add(run_of({"a"}, 4));
  EXPECT_TRUE(choice.take().empty());
  choice.finish();
  const ChoicePart last = choice.take();
  EXPECT_EQ(last.text, "a");
  EXPECT_EQ(last.bytes, 4);
  EXPECT_THAT(values_in(last), ElementsAre(4));
}

TEST(CompletionChoice, TheFirstStopTextEndsTheChoiceEvenWithinAValue) {
  const std::vector<std::string> stops = {"cd", "bc", "b", "never"};
  CompletionChoice choice(stops, true);
  choice.add(run_of({"x", "abc", "d"}));
  choice.add(run_of({"more"}, 3));
  choice.finish();
  const ChoicePart part = choice.take();
  EXPECT_EQ(part.text, "xa");
  EXPECT_THAT(values_in(part), ElementsAre(0, 1));
}

TEST(CompletionChoice, AStopTextMayComeInPieces) {
  const std::vector<std::string> stops = {"\u5ddd."};
  CompletionChoice choice(stops, false);
  choice.add(run_of({"a\u5ddd"}));
  EXPECT_EQ(choice.take().text, "a");
  choice.add(run_of({"."}, 1));
  choice.finish();
  EXPECT_TRUE(choice.take().empty());
}

TEST(CompletionChoice, AStopTextWithinThePromptIsIgnored) {
  const std::vector<std::string> stops = {"ab"};
  CompletionChoice choice(stops, false);
  choice.begin("aba");
  choice.add(run_of({"b", "c"}));
  EXPECT_EQ(choice.take().text, "ababc");
}

TEST(CompletionChoice, CountsCharacters) {
  const std::vector<std::string> stops;
  CompletionChoice choice(stops, true);
  choice.add(run_of({"\u5ddd", "", "b"}));
  choice.take();
  choice.add(run_of({"c"}, 3));
  const ChoicePart part = choice.take();
  EXPECT_EQ(part.bytes, 4);
  EXPECT_EQ(part.characters, 2);
  EXPECT_EQ(part.tokens[0].begin, 4);
}

// A run with two values, and the most likely values for both.
ValueRun run_with_top() {
  ValueRun run = run_of({"a", "b"});
  run.top_counts = {20, 20};
  run.top.resize(40);
  return run;
}

TEST(CompletionChoice, TokensThatWereTakenAreNotCounted) {
  const std::vector<std::string> stops;
  CompletionChoice choice(stops, true);
  choice.add(run_with_top());
  const int64_t held = choice.bytes();
  EXPECT_EQ(choice.take().tokens.size(), 2U);
  EXPECT_GE(held - choice.bytes(), static_cast<int64_t>(40 * sizeof(TopLogProb)));
}

TEST(ChatSample, TokensThatWereTakenAreNotCounted) {
  const std::vector<std::string> stops;
  ChatSample sample({}, "", stops, true);
  sample.add(run_with_top());
  const int64_t held = sample.bytes();
  EXPECT_EQ(sample.take_tokens().size(), 2U);
  EXPECT_GE(held - sample.bytes(), static_cast<int64_t>(40 * sizeof(TopLogProb)));
}

TEST(CompletionChoice, AValueIsNamedByItsBytes) {
  const auto bytes = Tokenizer::of_bytes();
  EXPECT_EQ(token_name('a', bytes.get()), "a");
  EXPECT_EQ(token_name(0xC3, bytes.get()), "bytes:\\xc3");
  EXPECT_EQ(token_name(5, nullptr), "token_id:5");
}

}  // namespace
}  // namespace runnel
