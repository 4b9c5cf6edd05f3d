#include "models/text/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "base/json.h"
#include "models/text/byte_letters.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// "<s>", every byte as Python's repr() prints it, "it's", a pair of bytes, and padding.
Json rwkv() {
  Json tokens = {"<s>"};
  Json types = {3};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "\\x%02x", static_cast<unsigned>(byte));
    if (byte == '\\') std::snprintf(text, sizeof(text), "\\\\");
    if (byte == '\n') std::snprintf(text, sizeof(text), "\\n");
    tokens.push_back(byte >= ' ' && byte < 127 && byte != '\\' ? std::string(1, char(byte)) : text);
    types.push_back(1);
  }
  for (const char* const word : {"it's", "\\xe5\\xb7", "[PAD259]"}) tokens.push_back(word);
  for (const int type : {1, 1, 5}) types.push_back(type);
  return {{"tokenizer.ggml.model", "rwkv"},
          {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.eos_token_id", 0},
          {"tokenizer.ggml.eot_token_id", 258}};
}

// Every byte, " a", "<|end|>" and padding.
Json gpt2() {
  Json tokens = Json::array(), types = Json::array();
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(letter_of(static_cast<unsigned char>(byte)));
    types.push_back(1);
  }
  for (const char* const word : {"\u0120a", "<|end|>", "[PAD258]"}) tokens.push_back(word);
  for (const int type : {1, 3, 5}) types.push_back(type);
  return {{"tokenizer.ggml.model", "gpt2"},        {"tokenizer.ggml.pre", "mpt"},
          {"tokenizer.ggml.tokens", tokens},       {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.merges", {"\u0120 a"}}, {"tokenizer.ggml.eos_token_id", 257}};
}

std::string fault_of(const Json& metadata) {
  const auto found = read_gguf_vocabulary(metadata, "m.gguf");
  EXPECT_FALSE(found.ok());
  return found.status().message();
}

std::string fault_with(Json metadata, const char* key, Json value) {
  metadata[key] = std::move(value);
  return fault_of(metadata);
}

TEST(GgufVocabulary, Rwkv) {
  const auto found = read_gguf_vocabulary(rwkv(), "m.gguf");
  ASSERT_TRUE(found.ok()) << found.status().message();
  const Tokenizer& tokenizer = *found->tokenizer;
  EXPECT_EQ(found->tokens, 260);
  EXPECT_EQ(tokenizer.size(), 259) << "padding is no value";
  EXPECT_EQ(found->eos, (std::vector<int32_t>{0, 258}));
  EXPECT_EQ(tokenizer.bytes(257), "it's");
  EXPECT_EQ(tokenizer.bytes(258), "\xe5\xb7");
  EXPECT_EQ(tokenizer.bytes('\\' + 1), "\\");
  EXPECT_EQ(*tokenizer.encode("it's \\"), (std::vector<int32_t>{257, ' ' + 1, '\\' + 1}));
  EXPECT_EQ(tokenizer.bytes(0), "");
}

TEST(GgufVocabulary, Gpt2) {
  const auto found = read_gguf_vocabulary(gpt2(), "m.gguf");
  ASSERT_TRUE(found.ok()) << found.status().message();
  const Tokenizer& tokenizer = *found->tokenizer;
  EXPECT_EQ(tokenizer.size(), 258);
  EXPECT_EQ(found->eos, (std::vector<int32_t>{257}));
  const auto values = tokenizer.encode("a a<|end|>");
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values->size(), 3U);
  EXPECT_EQ((*values)[1], 256);
  EXPECT_EQ((*values)[2], 257);
  EXPECT_EQ(tokenizer.bytes(256), " a");
  EXPECT_TRUE(tokenizer.begin().empty());
}

// The values of the text "<|end|>" by this writer, if the token "<|end|>" has this type.
std::vector<int32_t> values_of_end(int type, Writer writer) {
  Json metadata = gpt2();
  metadata["tokenizer.ggml.token_type"][257] = type;
  const auto found = read_gguf_vocabulary(metadata, "m.gguf");
  EXPECT_TRUE(found.ok()) << found.status().message();
  MarkedText text;
  text.append("<|end|>", writer);
  return *found->tokenizer->encode(text);
}

TEST(GgufVocabulary, OnlyTheTemplateWritesControlTokens) {
  constexpr int kControl = 3, kUserDefined = 4;
  EXPECT_EQ(values_of_end(kControl, Writer::kTemplate), std::vector<int32_t>{257});
  EXPECT_EQ(values_of_end(kControl, Writer::kAnswer).size(), 7U);
  EXPECT_EQ(values_of_end(kControl, Writer::kInput).size(), 7U);
  EXPECT_EQ(values_of_end(kUserDefined, Writer::kAnswer), std::vector<int32_t>{257});
  EXPECT_EQ(values_of_end(kUserDefined, Writer::kInput).size(), 7U);
}

TEST(GgufVocabulary, AddsTheFirstValueWhereTheFileAsks) {
  for (Json metadata : {rwkv(), gpt2()}) {
    metadata["tokenizer.ggml.add_bos_token"] = true;
    EXPECT_THAT(fault_of(metadata), HasSubstr("bos_token_id: expected a value, as"));
    metadata["tokenizer.ggml.bos_token_id"] = 0;
    const auto found = read_gguf_vocabulary(metadata, "m.gguf");
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found->tokenizer->begin(), (std::vector<int32_t>{0}));
  }
}

TEST(GgufVocabulary, TheEndsOfATurnAndOfAMessageEndATextToo) {
  Json metadata = gpt2();
  metadata["tokenizer.ggml.eot_token_id"] = 256;
  metadata["tokenizer.ggml.eom_token_id"] = 65;
  const auto found = read_gguf_vocabulary(metadata, "m.gguf");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->eos, (std::vector<int32_t>{257, 256, 65}));
}

TEST(GgufVocabulary, SomeSplitsAddAFirstValueUnlessTheFileDisablesIt) {
  Json metadata = gpt2();
  metadata["tokenizer.ggml.pre"] = "lfm2";
  metadata["tokenizer.ggml.bos_token_id"] = 257;
  const auto begin = [&] {
    const auto found = read_gguf_vocabulary(metadata, "m.gguf");
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found->tokenizer->begin();
  };
  EXPECT_EQ(begin(), std::vector<int32_t>{257});
  metadata["tokenizer.ggml.add_bos_token"] = false;
  EXPECT_EQ(begin(), std::vector<int32_t>());
}

TEST(GgufVocabulary, AFileWithoutAVocabularyIsValid) {
  for (const Json& metadata : {Json::object(), Json{{"tokenizer.ggml.model", "none"}}}) {
    const auto found = read_gguf_vocabulary(metadata, "m.gguf");
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->tokenizer, nullptr);
  }
}

Json json_at(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// The keys that llama.cpp's converter writes for a tokenizer.json.
Json keys_of(const Json& tree, const char* split) {
  std::map<int64_t, std::pair<std::string, int>> tokens;
  for (const auto& [token, value] : tree["model"]["vocab"].items()) tokens[value] = {token, 1};
  for (const Json& added : tree["added_tokens"]) {
    tokens[added["id"]] = {added["content"], added["special"] == true ? 3 : 4};
  }
  Json texts = Json::array(), types = Json::array(), merges = Json::array();
  for (const auto& [value, token] : tokens) {
    texts.push_back(token.first);
    types.push_back(token.second);
  }
  for (const Json& merge : tree["model"]["merges"]) {
    const bool is_text = merge.is_string();
    merges.push_back(is_text ? merge.get<std::string>()
                             : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", split},
          {"tokenizer.ggml.tokens", texts},
          {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.merges", merges}};
}

TEST(GgufVocabulary, EncodesAsTheTokenizerThatItWasMadeOf) {
  for (const auto& [name, split] :
       {std::pair{"qwen3_5", "qwen35"}, std::pair{"falcon", "falcon"}, std::pair{"gpt2", "gpt-2"},
        std::pair{"words", "llama-bpe"}, std::pair{"neox", "mpt"}}) {
    SCOPED_TRACE(name);
    const std::string folder = std::string("tests/golden/tokenizers/") + name;
    const Json keys = keys_of(json_at(folder + "/tokenizer.json"), split);
    const auto found = read_gguf_vocabulary(keys, "m.gguf");
    ASSERT_TRUE(found.ok()) << found.status().message();
    for (const Json& one : json_at(folder + "/encodings.json")) {
      const auto text = one["text"].get<std::string>();
      const auto values = found->tokenizer->encode(text);
      ASSERT_TRUE(values.ok()) << values.status().message();
      EXPECT_EQ(*values, one["values"].get<std::vector<int32_t>>()) << text;
    }
  }
}

// Each split allows only some merges, which show how it cuts a text into words.
TEST(GgufVocabulary, EverySplitCutsNumbersAndSignsAsItsModelsDo) {
  Json metadata = gpt2();
  for (const char* const word : {"12", "123", ".D"}) {
    metadata["tokenizer.ggml.tokens"].push_back(word);
    metadata["tokenizer.ggml.token_type"].push_back(1);
  }
  metadata["tokenizer.ggml.merges"] = {"1 2", "12 3", ". D"};
  const std::map<std::string, size_t> counts = {
      {"default", 4}, {"gpt-2", 4},  {"mpt", 4},       {"olmo", 4},  {"granite-docling", 4},
      {"refact", 6},  {"falcon", 4}, {"dbrx", 3},      {"lfm2", 3},  {"llama-bpe", 3},
      {"pixtral", 3}, {"tekken", 5}, {"falcon-h1", 3}, {"qwen2", 5}, {"qwen35", 5}};
  for (const auto& [split, count] : counts) {
    metadata["tokenizer.ggml.pre"] = split;
    const auto found = read_gguf_vocabulary(metadata, "m.gguf");
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found->tokenizer->encode("1234.D")->size(), count) << split;
  }
}

TEST(GgufVocabulary, RefusesUnsupportedFiles) {
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.model", "llama"),
              HasSubstr("m.gguf: tokenizer.ggml.model: expected 'rwkv' or 'gpt2', the models that "
                        "are implemented, found 'llama'"));
  EXPECT_THAT(fault_with(gpt2(), "tokenizer.ggml.pre", "bloom"),
              AllOf(HasSubstr("tokenizer.ggml.pre: expected 'default', 'gpt-2', 'mpt'"),
                    HasSubstr("the splits that are implemented, found 'bloom'")));
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.tokens", {1, 2}), HasSubstr("array of strings"));
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.token_type", {1, 2}),
              HasSubstr("an integer for each of the 260 tokens"));
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.eos_token_id", 260),
              HasSubstr("eos_token_id: expected a value below 260, found 260"));
  EXPECT_THAT(fault_with(gpt2(), "tokenizer.ggml.merges", {"x y"}), HasSubstr("merges"));
  EXPECT_THAT(fault_with(gpt2(), "tokenizer.ggml.add_bos_token", 1),
              HasSubstr("tokenizer.ggml.add_bos_token: expected true or false, found 1"));
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.add_eos_token", "yes"),
              HasSubstr("tokenizer.ggml.add_eos_token: expected true or false, found"));
  Json metadata = rwkv();
  metadata["tokenizer.ggml.tokens"][5] = "\\xg1";
  EXPECT_THAT(fault_of(metadata), HasSubstr("tokenizer.ggml.tokens: token 5: expected 1 to 1024"));
  metadata["tokenizer.ggml.tokens"][5] = "it's";
  EXPECT_THAT(fault_of(metadata), HasSubstr("expected a token of its own"));
  metadata = gpt2();
  metadata["tokenizer.ggml.tokens"][5] = "\xff";
  EXPECT_THAT(fault_of(metadata), HasSubstr("tokenizer.ggml.tokens[5]: expected UTF-8"));
  metadata["tokenizer.ggml.tokens"][5] = "!";
  EXPECT_THAT(fault_of(metadata), HasSubstr("a second time"));
}

}  // namespace
}  // namespace runnel
