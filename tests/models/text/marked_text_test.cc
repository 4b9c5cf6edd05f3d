// Text by several writers, and the tokens that are found in it.
#include "models/text/marked_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "models/text/load_tokenizer.h"

namespace runnel {
namespace {

using Json = nlohmann::json;

std::shared_ptr<const Tokenizer> golden_tokenizer(const std::string& name) {
  return load_tokenizer("tests/golden/tokenizers/" + name).value();
}

MarkedText marked(const std::vector<std::pair<std::string, Writer>>& parts) {
  MarkedText text;
  for (const auto& [bytes, writer] : parts) text.append(bytes, writer);
  return text;
}

bool finds(const Tokenizer& tokenizer, const MarkedText& text, int32_t value) {
  const auto values = tokenizer.encode(text);
  EXPECT_TRUE(values.ok()) << values.status().message();
  return values.ok() && std::ranges::count(*values, value) > 0;
}

constexpr Writer kT = Writer::kTemplate, kA = Writer::kAnswer, kI = Writer::kInput;

TEST(MarkedText, PartsKeepTheirWriters) {
  const MarkedText text = marked({{"ab", kT}, {"cd", kI}, {"e", kT}});
  EXPECT_EQ(part_of(text.bytes, text.runs, 1, 5).runs,
            (std::vector<TextRun>{{1, kT}, {3, kI}, {4, kT}}));
  EXPECT_EQ(part_of(text.bytes, text.runs, 2, 4).runs, (std::vector<TextRun>{{2, kI}}));
  EXPECT_EQ(part_of(text.bytes, text.runs, 2, 4).bytes, "cd");
  EXPECT_EQ(least_trusted(text.runs, 0, 2), kT);
  EXPECT_EQ(least_trusted(text.runs, 0, 3), kI);
  EXPECT_EQ(least_trusted(text.runs, 4, 5), kT);
  EXPECT_EQ(least_trusted({}, 0, 5), kT);
}

TEST(MarkedText, ControlTokensAreFoundInTheTemplateOnly) {
  const auto tokenizer = golden_tokenizer("words");
  constexpr int32_t kEnd = 900;
  EXPECT_TRUE(finds(*tokenizer, marked({{"a<|end|>b", kT}}), kEnd));
  EXPECT_TRUE(finds(*tokenizer, marked({{"a", kI}, {"<|end|>", kT}, {"b", kI}}), kEnd));
  EXPECT_FALSE(finds(*tokenizer, marked({{"a<|end|>b", kI}}), kEnd));
  EXPECT_FALSE(finds(*tokenizer, marked({{"a<|end|>b", kA}}), kEnd));
  EXPECT_FALSE(finds(*tokenizer, marked({{"<|e", kI}, {"nd|>", kT}}), kEnd));
  EXPECT_FALSE(finds(*tokenizer, marked({{"<|end|", kT}, {">", kI}}), kEnd));
  EXPECT_FALSE(finds(*tokenizer, marked({{"<|", kT}, {"end", kI}, {"|>", kT}}), kEnd));
}

TEST(MarkedText, LiteralTokensThatAreNotSpecialAreFoundInAnswers) {
  constexpr int32_t kRunnels = 903, kSnowman = 905, kEleve = 924, kThreeSpaces = 922;
  const auto words = golden_tokenizer("words");
  for (const auto& [text, value] : {std::pair("runnels", kRunnels), std::pair("☃", kSnowman)}) {
    EXPECT_TRUE(finds(*words, marked({{text, kA}}), value));
    EXPECT_TRUE(finds(*words, marked({{text, kT}}), value));
    EXPECT_FALSE(finds(*words, marked({{text, kI}}), value));
  }
  EXPECT_TRUE(finds(*words, marked({{"run", kT}, {"nels", kA}}), kRunnels));
  const auto neox = golden_tokenizer("neox");
  EXPECT_TRUE(finds(*neox, marked({{"a   b", kI}}), kThreeSpaces));
  // The token is found after normalization, which composes the characters and keeps their writers.
  const std::string eleve = "e\u0301le\u0300ve";
  EXPECT_TRUE(finds(*neox, marked({{"a ", kI}, {eleve, kT}, {" b", kI}}), kEleve));
  EXPECT_FALSE(finds(*neox, marked({{"a ", kT}, {eleve, kI}, {" b", kT}}), kEleve));
  EXPECT_FALSE(finds(*neox, marked({{"e", kT}, {"\u0301", kI}, {"le\u0300ve", kT}}), kEleve));
  EXPECT_FALSE(finds(*neox, marked({{"e\u0301le\u0300v", kT}, {"e", kI}}), kEleve));
}

TEST(MarkedText, WritersFollowMarksForSpaces) {
  constexpr int32_t kState = 661;
  const auto llama = golden_tokenizer("llama");
  // The token is found including the mark before it.
  EXPECT_TRUE(finds(*llama, marked({{"a b c", kI}, {" state", kT}}), kState));
  EXPECT_FALSE(finds(*llama, marked({{"a b c ", kI}, {"state", kT}}), kState));
  EXPECT_FALSE(finds(*llama, marked({{"a b c ", kT}, {"state", kI}}), kState));
  EXPECT_FALSE(finds(*llama, marked({{"a b c sta", kI}, {"te", kT}}), kState));
}

TEST(MarkedText, AShorterTokenIsFoundIfTheLongerOneIsNotAllowed) {
  const LiteralTokens tokens(
      {{.text = "<a>", .value = 1, .found_in = kI}, {.text = "<a>b", .value = 2, .found_in = kT}});
  const MarkedText text = marked({{"<a>", kT}, {"b", kI}});
  WorkLimit limit(std::chrono::hours(1));
  const auto match = tokens.find(text.bytes, 0, limit, text.runs);
  ASSERT_TRUE(match && match->token != nullptr);
  EXPECT_EQ(match->token->value, 1);
  EXPECT_EQ(tokens.find(text.bytes, 0, limit)->token->value, 2);
}

class MarkedEncoding : public ::testing::TestWithParam<const char*> {};

// Cutting a text into runs affects only literal tokens. Texts without them have the library's
// values, and no special token is found in a text that is all input.
TEST_P(MarkedEncoding, RunsAffectOnlyLiteralTokens) {
  const std::string directory = std::string("tests/golden/tokenizers/") + GetParam();
  const auto tokenizer = golden_tokenizer(GetParam());
  std::vector<std::string> literals;
  std::vector<int32_t> special;
  if (std::ifstream file(directory + "/tokenizer.json"); file) {
    const Json tree = Json::parse(file);
    for (const Json& token : tree["added_tokens"]) {
      literals.push_back(token["content"]);
      if (token["special"]) special.push_back(token["id"]);
    }
  }
  std::ifstream file(directory + "/encodings.json");
  std::mt19937 random(5);
  for (const Json& one : Json::parse(file)) {
    const auto text = one["text"].get<std::string>();
    const bool is_plain = std::ranges::none_of(
        literals, [&](const std::string& l) { return text.find(l) != std::string::npos; });
    for (const Writer most : {kT, kA, kI}) {
      MarkedText parts;
      for (const char c : text) {
        const bool other = most != kT && random() % 4 == 0;
        parts.append({&c, 1}, other || most == kI ? most : kT);
      }
      const auto values = tokenizer->encode(parts);
      ASSERT_TRUE(values.ok());
      if (is_plain || most == kT) {
        EXPECT_EQ(*values, one["values"].get<std::vector<int32_t>>()) << text;
      }
      for (const int32_t value : special) {
        EXPECT_TRUE(most != kI || std::ranges::count(*values, value) == 0) << text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MarkedEncoding,
                         ::testing::Values("gpt2", "words", "cases", "whole", "neox", "falcon",
                                           "llama", "mistral", "marks", "unmarked", "rwkv"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace runnel
