// Compares text to values and back with Hugging Face's tokenizers library and BlinkDL's package
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
#include "models/text/load_tokenizer.h"
#include "tests/base/eventually.h"

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
  auto tokenizer = load_tokenizer("tests/golden/tokenizers/" + name);
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

// Other tokenizers put a space before a text, compose its characters, or read a mark as a space.
bool keeps_text(std::string_view name) {
  constexpr std::array kKeeping = {"gpt2", "words", "cases", "whole", "falcon", "rwkv"};
  return std::ranges::find(kKeeping, name) != kKeeping.end();
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
    if (keeps_text(name)) {
      EXPECT_EQ(bytes_of(*tokenizer, values), text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         ::testing::Values("gpt2", "prefixed", "words", "cases", "qwen3_5", "whole",
                                           "neox", "falcon", "llama", "mistral", "marks",
                                           "unmarked", "rwkv"),
                         [](const auto& info) { return std::string(info.param); });

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

TEST(Tokenizer, ACharacterWithoutATokenIsEncodedAsBytes) {
  const auto tokenizer = golden_tokenizer("mistral");
  const std::vector<int32_t> values = encode(*tokenizer, "\u2603");
  ASSERT_EQ(values.size(), 4U);  // including the mark before the text
  EXPECT_EQ(tokenizer->bytes(values[1]), "\xE2");
  EXPECT_EQ(bytes_of(*tokenizer, values), " \u2603");
}

TEST(Tokenizer, TheSpaceBeforeATextIsNotWrittenAtItsStart) {
  for (const char* const name : {"llama", "mistral", "marks"}) {
    const auto tokenizer = golden_tokenizer(name);
    const int32_t first = encode(*tokenizer, "the").front();
    EXPECT_TRUE(tokenizer->bytes(first).starts_with(' ')) << name;
    EXPECT_EQ(" " + std::string(tokenizer->first_bytes(first)), tokenizer->bytes(first)) << name;
    EXPECT_EQ(tokenizer->first_bytes(1), "<s>") << name;
  }
  const auto unmarked = golden_tokenizer("unmarked");
  const int32_t space = encode(*unmarked, " ").front();
  EXPECT_EQ(unmarked->first_bytes(space), " ");
}

TEST(Tokenizer, HasTheValuesThatBeginAndEndAText) {
  for (const char* const name : {"llama", "mistral"}) {
    const auto tokenizer = golden_tokenizer(name);
    EXPECT_EQ(tokenizer->begin(), std::vector<int32_t>{1}) << name;
    EXPECT_EQ(tokenizer->end(), std::vector<int32_t>{2}) << name;
  }
  EXPECT_TRUE(golden_tokenizer("neox")->begin().empty());
  EXPECT_TRUE(golden_tokenizer("neox")->end().empty());
  EXPECT_TRUE(golden_tokenizer("rwkv")->begin().empty());
  EXPECT_EQ(golden_tokenizer("rwkv")->end(), std::vector<int32_t>{0});
}

TEST(Tokenizer, RefusesInvalidUtf8) {
  for (const auto& tokenizer : {Tokenizer::of_bytes(), golden_tokenizer("words"),
                                golden_tokenizer("llama"), golden_tokenizer("rwkv")}) {
    EXPECT_EQ(tokenizer->encode("ab\xFF").status().message(), "not valid UTF-8 at byte 2");
    EXPECT_EQ(tokenizer->encode("ab\xC3").status().code(), Code::kInvalidArgument);
  }
}

TEST(Tokenizer, RefusesTextThatTakesTooLong) {
  const std::string text(1000, 'a');
  for (const char* const name : {"words", "llama", "rwkv"}) {
    const auto tokenizer = golden_tokenizer(name);
    EXPECT_TRUE(tokenizer->encode(text).ok()) << name;
    EXPECT_THAT(tokenizer->encode(text, WorkLimit(Duration(0))).status().message(),
                HasSubstr("takes too long"))
        << name;
  }
}

// Characters of every kind next to one another, and pieces of the special tokens.
TEST(Tokenizer, ValuesDecodeToTheEncodedText) {
  constexpr std::array kPieces = {
      "a",   "B",    "z",       " ",      "  ",     "\n",         "\r",     "\t", "'s", "'",  "7",
      "٣",   "é",    "ß",       "Ж",      "川",     "\U0001F30A", "\u0301", "!",  "_",  "<|", "|>",
      "end", "ness", "<|end|>", "\u00a0", "\u2028", "\u200d",     "\u180e", "ſ",  "Ⅷ",  "½"};
  std::mt19937 random(11);
  for (const char* const name : {"gpt2", "words", "cases", "whole", "falcon", "rwkv"}) {
    const auto tokenizer = golden_tokenizer(name);
    for (int round = 0; round < 400; ++round) {
      std::string text;
      for (size_t i = random() % 40; i > 0; --i) text += kPieces[random() % kPieces.size()];
      EXPECT_EQ(bytes_of(*tokenizer, encode(*tokenizer, text)), text) << name;
    }
  }
}

// The rule itself, one merge at a time: the merge with the lowest rank, at its leftmost place.
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

TEST(BytePairs, MergeLikeTheReference) {
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
    WorkLimit limit(std::chrono::hours(1));
    ASSERT_TRUE(pairs.encode(word, limit, values));
    EXPECT_EQ(values, merged_plainly(plain, merges)) << word;
  }
}

// As long as a request's text may be. Time quadratic in this length would be minutes.
TEST(Tokenizer, LongHostileTextsAreFast) {
  const auto length = static_cast<size_t>(limits::kTextBytes.default_value);
  for (const char* const name : {"words", "whole", "falcon", "rwkv", "neox", "llama"}) {
    const auto tokenizer = golden_tokenizer(name);
    for (const std::string unit :
         {"a", " ", "\n", "ab", "<|end|", "the ", "川", " \n", "'", "<pad> ", "\u0301\u0316"}) {
      std::string text;
      while (text.size() < length) text += unit;
      std::vector<int32_t> values;
      EXPECT_TRUE(eventually([&] {  // a busy machine may exceed two seconds
        const auto encoded = tokenizer->encode(text);
        if (encoded.ok()) values = *encoded;
        return encoded.ok();
      }));
      EXPECT_FALSE(values.empty()) << name << unit;
      if (keeps_text(name)) {
        EXPECT_EQ(bytes_of(*tokenizer, values), text) << name << unit;
      }
    }
  }
}

TEST(Tokenizer, MergingStopsAtTheDeadline) {
  std::array<int32_t, 256> byte_values{};
  BytePairs pairs(byte_values);
  pairs.add_merge(0, 0, 1);
  std::vector<int32_t> values;
  WorkLimit limit(Duration(0));
  EXPECT_FALSE(pairs.encode(std::string(100000, 'a'), limit, values));
}

// --- The file ---

struct Fault {
  const char* pointer;  // the value to replace
  Json value;           // null: it is removed
  std::vector<std::string> message;
};

void expect_refused(const Json& tree, const std::vector<std::string>& message) {
  const auto tokenizer = Tokenizer::from_json(tree.dump(), "t.json");
  ASSERT_FALSE(tokenizer.ok()) << message.front();
  EXPECT_EQ(tokenizer.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(tokenizer.status().message().starts_with("t.json: "));
  for (const std::string& part : message) {
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(part));
  }
}

void expect_faults(const Json& file, const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    Json tree = file;
    const Json::json_pointer pointer(fault.pointer);
    if (fault.value.is_null()) {
      tree.at(pointer.parent_pointer()).erase(pointer.back());
    } else {
      tree[pointer] = fault.value;
    }
    expect_refused(tree, fault.message);
  }
}

constexpr const char* kMark = "\u2581";

Json sequence(const char* list, const Json& step) {
  return {{"type", "Sequence"}, {list, Json::array({step})}};
}

Json replace(const char* pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

// A post-processor with the template `single`, in which <s> is `value`.
Json templated(const Json& single, int value) {
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"special_tokens", {{"<s>", {{"ids", {value}}}}}}};
}

TEST(TokenizerFile, RefusesUnsupportedParts) {
  const Json begin = Json::array({{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", "A"}}});
  const Json lower = {{"type", "Lowercase"}};
  const Json prefix = {{"type", "Prepend"}, {"prepend", " "}};
  const Json bert = {{"type", "BertProcessing"}};
  const Json word = {{"type", "WordPiece"}, {"vocab", Json::object()}};
  const std::string split = "/pre_tokenizer/pretokenizers/0";
  const std::vector<Fault> faults = {
      {"/normalizer", lower, {"normalizer: expected null or the type 'NFC', ", "'Lowercase'"}},
      {"/normalizer", "x", {"normalizer: expected null or", "found 'x'"}},
      {"/normalizer", prefix, {"normalizer.prepend: expected '\\xe2\\x96\\x81', found ' '"}},
      {"/normalizer", sequence("normalizers", lower), {"normalizer.normalizers[0]: expected null"}},
      {"/normalizer", replace("a", kMark), {"normalizer.pattern.String: expected ' ', found 'a'"}},
      {"/normalizer", replace(" ", "_"), {"normalizer.content: expected '", "found '_'"}},
      {"/normalizer", replace(" ", kMark), {"pre_tokenizer: expected ByteLevel, or marks for sp"}},
      {"/truncation", prefix, {"truncation: expected null"}},
      {"/padding", Json::object(), {"padding: expected null", "found an object"}},
      {"/post_processor", bert, {"post_processor: expected null or", "the type 'BertProcessing'"}},
      {"/post_processor", {{"type", "TemplateProcessing"}}, {"post_processor.single: expected an"}},
      {"/post_processor", templated({{"A", 1}}, 0), {"post_processor.single: expected the text"}},
      {"/post_processor", templated(Json::array(), 0), {"single: expected one text, found 0"}},
      {"/post_processor", templated(begin, 5000), {"special_tokens['<s>'].ids: expected values t"}},
      {"/decoder", word, {"decoder: expected null or the type 'ByteLevel'"}},
      {"/model", word, {"model: expected the type 'BPE', found the type 'WordPiece'"}},
      {"/model/dropout", 0.1, {"model.dropout: expected null", "found 0.1"}},
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
       {"pre_tokenizer: expected one of the types 'ByteLevel', ", "found the type 'Whitespace'"}},
      {"/pre_tokenizer", nullptr, {"decoder: expected the type 'Replace', ", "has no ByteLevel"}},
      {"/pre_tokenizer/pretokenizers", 1, {"pretokenizers: expected an array of at most 16"}},
      {"/pre_tokenizer/pretokenizers/1", lower, {"pretokenizers[1]: expected one of the types"}},
      {"/pre_tokenizer/pretokenizers/2",
       {{"type", "ByteLevel"}},
       {"pretokenizers[2]: expected one ByteLevel, found a second one"}},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", {"behavior: expected 'Isolated'"}},
      {"/pre_tokenizer/pretokenizers/0/invert", true, {"[0].invert: expected false"}},
      {"/pre_tokenizer/pretokenizers/0/pattern",
       {{"String", " "}},
       {"expected one of the keys Reg"}},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", 1, {"Regex: expected a string, found 1"}},
      {"/added_tokens", 1, {"added_tokens: expected an array, found 1"}},
      {"/added_tokens/0/lstrip", 1, {"added_tokens[0].lstrip: expected true or false"}},
      {"/added_tokens/0/single_word", true, {"added_tokens[0].single_word: expected false"}},
      {"/added_tokens/0/id", 3, {"added_tokens[0]: expected a value of its own, found 3 a second"}},
      {"/added_tokens/0/content", "", {"added_tokens[0]: expected a token of 1 to 1024 bytes"}},
      {"/added_tokens/0/content", 5, {"added_tokens[0].content: expected a string, found 5"}},
      {"/added_tokens/0/content", "a", {"the value of 'a' in model.vocab"}},
      {"/added_tokens/0/content", "<|pause|>", {"a token of its own, found '<|pause|>' a second"}},
      {"/colour", 1, {"the file: expected one of the keys version", "found 'colour'"}},
  };
  expect_faults(golden_tree(), faults);
}

// Changes to a file without ByteLevel.
TEST(TokenizerFile, RefusesTextsThatCannotBeDecoded) {
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", kMark}};
  Json bare = metaspace, other = metaspace, unknown = metaspace;
  bare["add_prefix_space"] = false;
  other["replacement"] = "_";
  unknown["prepend_scheme"] = "last";
  const std::vector<Fault> faults = {
      {"/decoder", nullptr, {"decoder: expected marks to become spaces, as spaces become marks"}},
      {"/decoder", {{"type", "ByteLevel"}}, {"decoder: expected the type 'Replace'"}},
      {"/decoder/decoders/0/content", "_", {"decoder.decoders[0].content: expected ' '"}},
      {"/decoder/decoders/3/start", 2, {"decoders[3].start: expected an integer from 0 to 1"}},
      {"/decoder/decoders/3/stop", 1, {"decoders[3].stop: expected an integer from 0 to 0"}},
      {"/model/byte_fallback", nullptr, {"model.byte_fallback: expected true", "found false"}},
      {"/model/byte_fallback", false, {"model.byte_fallback: expected true (without ByteLevel"}},
      {"/model/vocab/<0x80>", nullptr, {"none for byte 128 ('<0x80>')"}},
      {"/pre_tokenizer", bare, {"pre_tokenizer.add_prefix_space: expected true (as prepend_sch"}},
      {"/pre_tokenizer", other, {"pre_tokenizer.replacement: expected '", "found '_'"}},
      {"/pre_tokenizer", unknown, {"prepend_scheme: expected 'always' or 'first' or 'never'"}},
      {"/pre_tokenizer", {{"type", "Digits"}}, {"decoder: expected marks to stay, as spaces do"}},
  };
  expect_faults(Json::parse(golden("mistral/tokenizer.json")), faults);
}

TEST(TokenizerFile, BytesThatUtf8NeverHoldsNeedNoToken) {
  Json tree = Json::parse(golden("mistral/tokenizer.json"));
  for (const char* const name : {"<0xC0>", "<0xC1>", "<0xF5>", "<0xFF>"}) {
    tree["model"]["vocab"].erase(name);
  }
  EXPECT_TRUE(Tokenizer::from_json(tree.dump(), "t.json").ok());
}

TEST(TokenizerFile, RefusesTokensThatAreTheSameWhenNormalized) {
  Json tree = Json::parse(golden("neox/tokenizer.json"));
  Json token = tree["added_tokens"].back();
  token["content"] = "\u00e9l\u00e8ve";
  token["id"] = 3000;
  tree["added_tokens"].push_back(token);
  expect_refused(tree, {"a token of its own", "which is another one when normalized"});
}

TEST(TokenizerFile, RefusesTooManyBytesOfAddedTokens) {
  Json tree = golden_tree();
  for (int i = 0; i < 4200; ++i) {
    const std::string text = std::to_string(i) + std::string(1000, 'a');
    tree["added_tokens"].push_back({{"id", 3000 + i}, {"content", text}});
  }
  expect_refused(tree, {"added_tokens: expected at most 4194304 bytes in all, found more"});
}

TEST(TokenizerFile, RefusesAVocabularyWithoutAByte) {
  Json tree = golden_tree();
  tree["model"]["vocab"].erase("Ġ");
  expect_refused(tree, {"model.vocab: expected a token for each byte of UTF-8, found none for byte "
                        "32 ('\\xc4\\xa0')"});
}

TEST(TokenizerFile, RefusesPatternsThatOtherEnginesReadDifferently) {
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
    const auto tokenizer = Tokenizer::from_json(tree.dump(), "t.json");
    EXPECT_EQ(tokenizer.ok(), std::string_view(broken) == "a{2") << broken;
  }
}

TEST(TokenizerFile, APatternThatTakesTooLongIsGivenUp) {
  Json tree = golden_tree();
  tree[Json::json_pointer("/pre_tokenizer/pretokenizers/0/pattern/Regex")] = "(a+a+)+\\d";
  const auto tokenizer = Tokenizer::from_json(tree.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto values = (*tokenizer)->encode(std::string(200, 'a'));
  EXPECT_EQ(values.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(values.status().message(), HasSubstr("too hard to cut into words near byte 0"));
}

TEST(TokenizerFile, ASearchWithoutAMatchIsStopped) {
  // PCRE2 scans all following spaces from every space, and no limit of its own counts that work.
  const auto pattern = SplitPattern::compile("\\s*[\\r\\n]");
  ASSERT_TRUE(pattern.ok()) << pattern.status().message();
  std::vector<std::string_view> pieces;
  const std::string text(256 << 10, ' ');
  WorkLimit limit(std::chrono::milliseconds(50));
  const Duration begin = WorkLimit::processor_time();
  const Status status = pattern->split(text, limit, pieces);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("too hard to cut into words"));
  EXPECT_LT(WorkLimit::processor_time() - begin, std::chrono::seconds(10));
}

TEST(TokenizerFile, ValuesMayHaveHolesBetweenThem) {
  Json tree = golden_tree();
  tree["added_tokens"][0]["id"] = 5000;
  const auto tokenizer = Tokenizer::from_json(tree.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->size(), 5001);
  EXPECT_EQ((*tokenizer)->bytes(5000), "<|end|>");
  EXPECT_EQ((*tokenizer)->bytes(4999), "");
}

}  // namespace
}  // namespace runnel
