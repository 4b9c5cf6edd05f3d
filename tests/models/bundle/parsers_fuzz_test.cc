// Checks the properties of tests/fuzz on a limited number of seeded mutations of valid inputs.
#include <gtest/gtest.h>

#include "tests/fuzz/properties.h"
#include "tests/fuzz/published_properties.h"
#include "tests/fuzz/resp_properties.h"
#include "tests/fuzz/template_properties.h"
#include "tests/fuzz/walk.h"

namespace runnel {
namespace {

TEST(ParsersFuzz, JsonProperties) {
  const int accepted = walk(json_seeds(), Mutator(5, spec_words()), check_json);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

TEST(ParsersFuzz, KeysProperties) {
  const int accepted = walk(key_seeds(), Mutator(6, key_words()), check_keys);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

TEST(ParsersFuzz, StateFileProperties) {
  const int accepted = walk(state_seeds(), Mutator(8, state_words()), check_state_file);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

TEST(ParsersFuzz, ReplyProperties) {
  const int accepted = walk(reply_seeds(), Mutator(10, reply_words()), check_replies);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

TEST(ParsersFuzz, SpecProperties) {
  const int accepted = walk(spec_seeds(), Mutator(1, spec_words()), check_spec);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

TEST(ParsersFuzz, PublishedProperties) {
  const int accepted = walk(published_seeds(), Mutator(6, published_words()), check_published);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

TEST(ParsersFuzz, WeightIndexProperties) {
  const int accepted =
      walk(weight_index_seeds(), Mutator(7, weight_index_words()), check_weight_index);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

TEST(ParsersFuzz, TokenizerProperties) {
  constexpr int kFiles = 6000;  // each compiles a regular expression and reads a vocabulary
  const int accepted =
      walk(tokenizer_seeds(), Mutator(4, tokenizer_words()), check_tokenizer, kFiles);
  EXPECT_GT(accepted, kFiles / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kFiles);
}

TEST(ParsersFuzz, TemplateProperties) {
  constexpr int kTemplates = 10000;
  const int accepted =
      walk(template_seeds(), Mutator(9, template_words()), check_template, kTemplates);
  EXPECT_GT(accepted, kTemplates / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kTemplates);
}

TEST(ParsersFuzz, VocabularyProperties) {
  constexpr int kFiles = 3000;
  const int accepted =
      walk(vocabulary_seeds(), Mutator(6, vocabulary_words()), check_vocabulary, kFiles);
  EXPECT_GT(accepted, kFiles / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kFiles);
}

TEST(ParsersFuzz, GgufProperties) {
  const int accepted = walk(gguf_seeds(), Mutator(9, gguf_words()), check_gguf);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

TEST(ParsersFuzz, SafetensorsProperties) {
  const int accepted =
      walk(safetensors_seeds(), Mutator(2, safetensors_words()), check_safetensors);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

// Mutates only the header and corrects its length, so that more inputs reach the layout checks.
TEST(ParsersFuzz, SafetensorsHeaderProperties) {
  std::vector<std::string> headers;
  for (const std::string& file : safetensors_seeds()) {
    headers.push_back(file.substr(8, file.rfind('}') + 1 - 8));
  }
  const std::string data(24, '\0');
  int accepted = 0;
  for (const size_t data_bytes : {0, 4, 8, 24}) {
    std::vector<std::string> pool = headers;
    Mutator mutate(3 + data_bytes, safetensors_words());
    for (int i = 0; i < kInputs / 4; ++i) {
      const std::string header =
          mutate(pool[mutate.below(pool.size())], pool[mutate.below(pool.size())]);
      const uint64_t length = header.size();
      std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
      file += header;
      file += data.substr(0, data_bytes);
      if (!check_safetensors(file)) continue;
      ++accepted;
      if (pool.size() < 500) pool.push_back(header);
    }
  }
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

}  // namespace
}  // namespace runnel
