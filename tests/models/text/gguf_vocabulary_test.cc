#include "models/text/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "base/json.h"
#include "models/text/byte_letters.h"

namespace runnel {
namespace {

using testing::HasSubstr;

// "<s>", every byte as Python's repr() writes it, "it's", a pair of bytes, padding.
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

// The values of "<|end|>" in text that `writer` wrote, of a token of this type.
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

TEST(GgufVocabulary, NoneIsFine) {
  const auto found = read_gguf_vocabulary(Json::object(), "m.gguf");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->tokenizer, nullptr);
}

TEST(GgufVocabulary, RefusesAnythingElse) {
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.model", "llama"),
              HasSubstr("m.gguf: tokenizer.ggml.model: expected 'rwkv' or 'gpt2', the models that "
                        "are implemented, found 'llama'"));
  EXPECT_THAT(fault_with(gpt2(), "tokenizer.ggml.pre", "qwen2"),
              HasSubstr("tokenizer.ggml.pre: expected 'gpt-2', 'mpt' or 'olmo'"));
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.tokens", {1, 2}), HasSubstr("array of strings"));
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.token_type", {1, 2}),
              HasSubstr("an integer for each of the 260 tokens"));
  EXPECT_THAT(fault_with(rwkv(), "tokenizer.ggml.eos_token_id", 260),
              HasSubstr("eos_token_id: expected a value below 260, found 260"));
  EXPECT_THAT(fault_with(gpt2(), "tokenizer.ggml.merges", {"x y"}), HasSubstr("merges"));
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
