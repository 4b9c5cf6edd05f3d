#include "models/text/literal_tokens.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <string>

namespace runnel {
namespace {

using Match = std::pair<size_t, int32_t>;  // position and value

std::vector<Match> all_in(const LiteralTokens& tokens, std::string_view text) {
  std::vector<Match> matches;
  WorkLimit limit(std::chrono::hours(1));
  for (size_t from = 0; from < text.size();) {
    const auto match = tokens.find(text, from, limit);
    if (!match || match->token == nullptr) break;
    matches.emplace_back(match->begin, match->token->value);
    from = match->end;
  }
  return matches;
}

TEST(LiteralTokens, FindsTheFirstMatchAndThereTheLongest) {
  const LiteralTokens tokens(
      {{.text = "ab", .value = 7}, {.text = "abcd", .value = 8}, {.text = "bc", .value = 9}});
  EXPECT_EQ(all_in(tokens, "xabcabcdbcab"), (std::vector<Match>{{1, 7}, {4, 8}, {8, 9}, {10, 7}}));
  EXPECT_TRUE(all_in(tokens, "acbd").empty());
  EXPECT_TRUE(all_in(LiteralTokens(), "abcd").empty());
}

// At every place of the text, a token fails only at its last byte: a complete search would take
// many seconds. The test measures processor time, which does not depend on how busy the machine is.
TEST(LiteralTokens, ASearchWithoutAMatchStopsAtTheDeadline) {
  const LiteralTokens tokens({{.text = std::string(1023, 'a') + "b", .value = 1}});
  const std::string text(4 << 20, 'a');
  WorkLimit limit(std::chrono::milliseconds(20));
  const std::clock_t begin = std::clock();
  EXPECT_FALSE(tokens.find(text, 0, limit).has_value());
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
}

TEST(LiteralTokens, SpaceIsUnicodeWhiteSpace) {
  EXPECT_EQ(space_at_start(" \t\u00a0\u3000x "), 7U);
  EXPECT_EQ(space_at_end(" x\u2028\r\n"), 5U);
  EXPECT_EQ(space_at_start("\u200b "), 0U);
  EXPECT_EQ(space_at_end("\u180e"), 0U);
  EXPECT_EQ(space_at_start("  "), 2U);
  EXPECT_EQ(space_at_end(""), 0U);
}

}  // namespace
}  // namespace runnel
