// Text to values and back, against what the tokenizers library of Hugging Face gives
// (tests/golden).
#include "models/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/limits.h"
#include "base/utf8.h"

namespace runnel {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

std::string golden(const std::string& name) {
  std::ifstream in("tests/golden/tokenizers/" + name);
  EXPECT_TRUE(in) << name;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Json golden_tree() { return Json::parse(golden("words/tokenizer.json")); }

std::shared_ptr<const Tokenizer> golden_tokenizer(const std::string& name) {
  auto tokenizer = Tokenizer::parse(golden(name + "/tokenizer.json"), name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *tokenizer;
}

std::string bytes_of(const Tokenizer& tokenizer, const std::vector<int32_t>& values) {
  std::string bytes;
  for (const int32_t value : values) bytes += tokenizer.bytes(value);
  return bytes;
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  auto values = tokenizer.encode(text);
  EXPECT_TRUE(values.ok()) << values.status().message();
  return values.ok() ? *values : std::vector<int32_t>();
}

class GoldenTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, GivesTheValuesOfTheLibrary) {
  const std::string name = GetParam();
  const auto tokenizer = golden_tokenizer(name);
  const Json encodings = Json::parse(golden(name + "/encodings.json"));
  EXPECT_GT(encodings.size(), 90U);
  for (const Json& one : encodings) {
    const auto text = one["text"].get<std::string>();
    const std::vector<int32_t> values = encode(*tokenizer, text);
    EXPECT_EQ(values, one["values"].get<std::vector<int32_t>>()) << text;
    if (name != "prefixed") {
      EXPECT_EQ(bytes_of(*tokenizer, values), text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         ::testing::Values("gpt2", "prefixed", "words", "cases", "whole"));

TEST(Tokenizer, BytesAreTheirOwnValues) {
  const auto tokenizer = Tokenizer::of_bytes();
  EXPECT_EQ(tokenizer->size(), 256);
  EXPECT_EQ(tokenizer->longest(), 1);
  EXPECT_EQ(encode(*tokenizer, "h\xC3\xA9\n"), (std::vector<int32_t>{'h', 0xC3, 0xA9, '\n'}));
  EXPECT_EQ(encode(*tokenizer, ""), std::vector<int32_t>());
  EXPECT_EQ(tokenizer->bytes(0xFF), "\xFF");
  EXPECT_EQ(tokenizer->bytes(0), std::string_view("\0", 1));
  EXPECT_EQ(tokenizer->bytes(-1), "");
  EXPECT_EQ(tokenizer->bytes(256), "");
}

TEST(Tokenizer, RefusesWhatIsNotUtf8) {
  for (const auto& tokenizer : {Tokenizer::of_bytes(), golden_tokenizer("words")}) {
    EXPECT_EQ(tokenizer->encode("ab\xFF").status().message(), "not valid UTF-8 at byte 2");
    EXPECT_EQ(tokenizer->encode("ab\xC3").status().code(), Code::kInvalidArgument);
  }
}

// Characters of every kind next to one another, and pieces of the special tokens.
TEST(Tokenizer, WhatIsEncodedDecodesToTheSameText) {
  constexpr std::array kPieces = {
      "a",   "B",    "z",       " ",      "  ",     "\n",     "\r",     "\t", "'s", "'",  "7",
      "٣",   "é",    "ß",       "Ж",      "川",     "🌊",     "\u0301", "!",  "_",  "<|", "|>",
      "end", "ness", "<|end|>", "\u00a0", "\u2028", "\u200d", "\u180e", "ſ",  "Ⅷ",  "½"};
  std::mt19937 random(11);
  for (const char* const name : {"gpt2", "words", "cases", "whole"}) {
    const auto tokenizer = golden_tokenizer(name);
    for (int round = 0; round < 400; ++round) {
      std::string text;
      for (size_t i = random() % 40; i > 0; --i) text += kPieces[random() % kPieces.size()];
      EXPECT_EQ(bytes_of(*tokenizer, encode(*tokenizer, text)), text) << name;
    }
  }
}

// The rule itself, one merge at a time: the most urgent pair, the leftmost of them.
std::vector<int32_t> merged_plainly(std::vector<int32_t> word,
                                    const std::vector<std::array<int32_t, 3>>& merges) {
  for (bool again = true; again;) {
    again = false;
    for (const auto& [left, right, merged] : merges) {
      const std::array pair = {left, right};
      const auto found = std::search(word.begin(), word.end(), pair.begin(), pair.end());
      if (found == word.end()) continue;
      *found = merged;
      word.erase(found + 1);
      again = true;
      break;
    }
  }
  return word;
}

TEST(BytePairs, MergeAsTheRuleSays) {
  std::array<int32_t, 256> byte_values{};
  for (int i = 0; i < 256; ++i) byte_values[static_cast<size_t>(i)] = 255 - i;
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    BytePairs pairs(byte_values);
    std::vector<std::array<int32_t, 3>> merges;
    std::vector<int32_t> known = {255 - 'a', 255 - 'b', 255 - 'c'};
    for (int32_t merged = 256; merged < 270; ++merged) {
      const int32_t left = known[random() % known.size()], right = known[random() % known.size()];
      const bool is_new = std::ranges::none_of(
          merges, [&](const auto& m) { return m[0] == left && m[1] == right; });
      if (!is_new) continue;
      merges.push_back({left, right, merged});
      pairs.add_merge(left, right, merged);
      known.push_back(merged);
    }
    std::string word;
    std::vector<int32_t> plain;
    for (size_t i = random() % 60; i > 0; --i) {
      word += static_cast<char>('a' + random() % 3);
      plain.push_back(255 - word.back());
    }
    std::vector<int32_t> values;
    pairs.encode(word, values);
    EXPECT_EQ(values, merged_plainly(plain, merges)) << word;
  }
}

// As long as the longest text of a request may be; the square of it would take minutes.
TEST(Tokenizer, LongHostileTextsAreNoWork) {
  const auto length = static_cast<size_t>(limits::kTextBytes.default_value);
  const auto words = golden_tokenizer("words");
  const auto whole = golden_tokenizer("whole");
  for (const std::string unit : {"a", " ", "\n", "ab", "<|end|", "the ", "川", " \n", "'"}) {
    std::string text;
    while (text.size() < length) text += unit;
    for (const auto& tokenizer : {words, whole}) {
      EXPECT_EQ(bytes_of(*tokenizer, encode(*tokenizer, text)), text) << unit;
    }
  }
}

// --- The file ---

struct Fault {
  const char* pointer;  // what is replaced
  Json value;           // null: it is removed
  std::vector<std::string> message;
};

void expect_refused(const Json& tree, const std::vector<std::string>& message) {
  const auto tokenizer = Tokenizer::parse(tree.dump(), "t.json");
  ASSERT_FALSE(tokenizer.ok()) << message.front();
  EXPECT_EQ(tokenizer.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(tokenizer.status().message().starts_with("t.json: "));
  for (const std::string& part : message) {
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(part));
  }
}

TEST(TokenizerFile, RefusesWhatWouldBeDoneDifferently) {
  const Json nfc = {{"type", "NFC"}};
  const Json prefix = {{"type", "Prepend"}};
  const Json bert = {{"type", "TemplateProcessing"}};
  const Json word = {{"type", "WordPiece"}, {"vocab", Json::object()}};
  const std::string split = "/pre_tokenizer/pretokenizers/0";
  const std::vector<Fault> faults = {
      {"/normalizer", nfc, {"normalizer: expected null (text is taken", "found the type 'NFC'"}},
      {"/normalizer", "x", {"normalizer: expected null", "found 'x'"}},
      {"/truncation", prefix, {"truncation: expected null"}},
      {"/padding", Json::object(), {"padding: expected null", "found an object"}},
      {"/post_processor",
       bert,
       {"post_processor: expected null or the type 'ByteLevel', found the "
        "type 'TemplateProcessing'; a first value is given by begin"}},
      {"/decoder", word, {"decoder: expected null or the type 'ByteLevel'"}},
      {"/model", word, {"model: expected the type 'BPE', found the type 'WordPiece'"}},
      {"/model/dropout", 0.1, {"model.dropout: expected null", "found 0.1"}},
      {"/model/unk_token", "<unk>", {"model.unk_token: expected null", "found '<unk>'"}},
      {"/model/byte_fallback", true, {"model.byte_fallback: expected false", "found true"}},
      {"/model/end_of_word_suffix", "</w>", {"model.end_of_word_suffix: expected null or ''"}},
      {"/model/colour", 1, {"model: expected one of the keys type", "found 'colour'"}},
      {"/model/vocab", 3, {"model.vocab: expected an object, found 3"}},
      {"/model/vocab/a", -1, {"model.vocab['a']: expected an integer from 0 to 1048575"}},
      {"/model/vocab/a", 1 << 20, {"model.vocab['a']: expected an integer", "found 1048576"}},
      {"/model/vocab/a", 0, {"a value of its own, found 0 a second time"}},
      {"/model/merges", "a b", {"model.merges: expected an array, found 'a b'"}},
      {"/model/merges/0", "ab", {"model.merges[0]: expected two tokens", "found 'ab'"}},
      {"/model/merges/0", {"a", "b", "c"}, {"model.merges[0]: expected two tokens", "array of 3"}},
      {"/model/merges/0", {"a", 1}, {"model.merges[0]: expected two tokens"}},
      {"/model/merges/0",
       {"a", "qqqq"},
       {"model.merges[0]: expected tokens of model.vocab", "found 'qqqq'"}},
      {"/pre_tokenizer",
       {{"type", "Whitespace"}},
       {"pre_tokenizer: expected the type 'ByteLevel'", "found the type 'Whitespace'"}},
      {"/pre_tokenizer", nullptr, {"pre_tokenizer: expected the type 'ByteLevel'", "no such key"}},
      {"/pre_tokenizer/pretokenizers", Json::array(), {"pretokenizers: expected an array of at"}},
      {"/pre_tokenizer/pretokenizers/1", nfc, {"pretokenizers[1]: expected the type 'ByteLevel'"}},
      {"/pre_tokenizer/pretokenizers/1/use_regex", true, {"[1].use_regex: expected false"}},
      {"/pre_tokenizer/pretokenizers/1/use_regex", nullptr, {"[1].use_regex: expected false"}},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true, {"add_prefix_space: expected fal"}},
      {"/pre_tokenizer/pretokenizers/0", {{"type", "Digits"}}, {"[0]: expected the type 'Split'"}},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", {"behavior: expected 'Isolated'"}},
      {"/pre_tokenizer/pretokenizers/0/invert", true, {"[0].invert: expected false"}},
      {"/pre_tokenizer/pretokenizers/0/pattern",
       {{"String", " "}},
       {"expected one of the keys Reg"}},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", 1, {"Regex: expected a string, found 1"}},
      {"/added_tokens", 1, {"added_tokens: expected an array, found 1"}},
      {"/added_tokens/0/lstrip", true, {"added_tokens[0].lstrip: expected false"}},
      {"/added_tokens/0/single_word", true, {"added_tokens[0].single_word: expected false"}},
      {"/added_tokens/0/id", 3, {"added_tokens[0]: expected a value of its own, found 3 a second"}},
      {"/added_tokens/0/content", "", {"added_tokens[0]: expected a token of 1 to 1024 bytes"}},
      {"/added_tokens/0/content", 5, {"added_tokens[0].content: expected a string, found 5"}},
      {"/added_tokens/0/content", "a", {"the value of 'a' in model.vocab"}},
      {"/added_tokens/0/content", "<|pause|>", {"a token of its own, found '<|pause|>' a second"}},
      {"/colour", 1, {"the file: expected one of the keys version", "found 'colour'"}},
  };
  for (const Fault& fault : faults) {
    Json tree = golden_tree();
    const Json::json_pointer pointer(fault.pointer);
    if (fault.value.is_null()) {
      tree.at(pointer.parent_pointer()).erase(pointer.back());
    } else {
      tree[pointer] = fault.value;
    }
    expect_refused(tree, fault.message);
  }
}

TEST(TokenizerFile, RefusesAVocabularyWithoutAByte) {
  Json tree = golden_tree();
  tree["model"]["vocab"].erase("Ġ");
  expect_refused(tree, {"model.vocab: expected a token for each single byte, found none for byte "
                        "32 ('\\xc4\\xa0')"});
}

TEST(TokenizerFile, RefusesPatternsThatMeanAnotherThingHere) {
  for (const char* const part :
       {"^",   "$",     "\\w",     "\\W",      "\\b",     "\\h",  "\\R",  "\\X",
        "\\1", "\\x41", "\\u0041", "\\p{Han}", "\\p{^L}", "\\pL", "(?m:", "(?<n>",
        "{,",  "[",     "[]",      "[^]",      "&&",      "\\S"}) {
    const bool in_class = std::string_view("[&&\\S").find(part) != std::string_view::npos;
    const std::string inside = in_class && part[1] != ']' ? "[a" + std::string(part) + "b]" : part;
    Json tree = golden_tree();
    tree[Json::json_pointer("/pre_tokenizer/pretokenizers/0/pattern/Regex")] = "a+|" + inside + "3";
    expect_refused(tree, {"pattern.Regex: expected a pattern without '"});
  }
  for (const char* const broken : {"(", "[a", "a{2", "*", "\\"}) {
    Json tree = golden_tree();
    tree[Json::json_pointer("/pre_tokenizer/pretokenizers/0/pattern/Regex")] = broken;
    const auto tokenizer = Tokenizer::parse(tree.dump(), "t.json");
    EXPECT_EQ(tokenizer.ok(), std::string_view(broken) == "a{2") << broken;
  }
}

TEST(TokenizerFile, APatternThatTakesTooLongIsGivenUp) {
  Json tree = golden_tree();
  tree[Json::json_pointer("/pre_tokenizer/pretokenizers/0/pattern/Regex")] = "(a+a+)+\\d";
  const auto tokenizer = Tokenizer::parse(tree.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto values = (*tokenizer)->encode(std::string(200, 'a'));
  EXPECT_EQ(values.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(values.status().message(), HasSubstr("too hard to cut into words near byte 0"));
}

TEST(TokenizerFile, AFruitlessSearchEndsInTime) {
  // From every space PCRE2 looks at all that follow; no limit of its own counts that.
  const auto pattern = SplitPattern::compile("\\s*[\\r\\n]");
  ASSERT_TRUE(pattern.ok()) << pattern.status().message();
  std::vector<std::string_view> pieces;
  const std::string text(256 << 10, ' ');
  const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  const Status status = pattern->split(text, deadline, pieces);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("too hard to cut into words"));
  EXPECT_LT(std::chrono::steady_clock::now(), deadline + std::chrono::seconds(10));
}

TEST(TokenizerFile, ValuesMayHaveHolesBetweenThem) {
  Json tree = golden_tree();
  tree["added_tokens"][0]["id"] = 5000;
  const auto tokenizer = Tokenizer::parse(tree.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->size(), 5001);
  EXPECT_EQ((*tokenizer)->bytes(5000), "<|end|>");
  EXPECT_EQ((*tokenizer)->bytes(4999), "");
}

}  // namespace
}  // namespace runnel
