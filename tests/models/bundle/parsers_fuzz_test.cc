// The properties of tests/fuzz over a bounded, seeded walk of mutations from well-formed inputs.
#include <gtest/gtest.h>

#include <random>

#include "tests/fuzz/properties.h"
#include "tests/fuzz/published_properties.h"

namespace runnel {
namespace {

constexpr int kInputs = 50000;
constexpr size_t kMaxInput = 4096;

class Mutator {
 public:
  Mutator(uint64_t seed, std::span<const std::string_view> words) : bits_(seed), words_(words) {}

  // A number below `end`.
  size_t below(size_t end) { return bits_() % end; }

  // One to three small changes.
  std::string operator()(std::string input, const std::string& other) {
    for (size_t changes = 1 + below(3); changes > 0; --changes) change(input, other);
    if (input.size() > kMaxInput) input.resize(kMaxInput);
    return input;
  }

 private:
  void change(std::string& input, const std::string& other) {
    const size_t at = below(input.size() + 1);
    const size_t length = std::min(below(16), input.size() - at);
    const std::string_view word = words_[below(words_.size())];
    switch (below(7)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ 1 << below(8));
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(at, word);
        break;
      case 3:
        replace_number(input, at);
        break;
      case 4:
        input.insert(below(input.size() + 1), input.substr(at, length));
        break;
      case 5:
        input.replace(at, length, other, below(other.size() + 1), below(32));
        break;
      default:
        replace_token(input, at, word);
        break;
    }
  }

  // The run of digits at or after `at` becomes another small number: most stay well-formed.
  void replace_number(std::string& input, size_t at) {
    const size_t begin = input.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(input.find_first_not_of("0123456789", begin), input.size());
    input.replace(begin, end - begin, std::to_string(below(40)));
  }

  // What stands between two separators becomes a word.
  void replace_token(std::string& input, size_t at, std::string_view word) {
    const size_t begin = input.find_first_of(":[,", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(input.find_first_of(",]}", begin + 1), input.size());
    input.replace(begin + 1, end - begin - 1, word);
  }

  std::mt19937_64 bits_;
  std::span<const std::string_view> words_;
};

// Mutates members of a pool, which grows by what was accepted. Gives how many inputs were.
template <typename Check>
int walk(std::vector<std::string> pool, Mutator mutate, Check check, int inputs = kInputs) {
  int accepted = 0;
  for (const std::string& seed : pool) EXPECT_TRUE(check(seed)) << seed;
  for (int i = 0; i < inputs; ++i) {
    std::string input = mutate(pool[mutate.below(pool.size())], pool[mutate.below(pool.size())]);
    if (!check(input)) continue;
    ++accepted;
    if (pool.size() < 500) pool.push_back(std::move(input));
  }
  return accepted;
}

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
  constexpr int kFiles = 6000;  // each takes a regular expression and a vocabulary
  const int accepted =
      walk(tokenizer_seeds(), Mutator(4, tokenizer_words()), check_tokenizer, kFiles);
  EXPECT_GT(accepted, kFiles / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kFiles);
}

TEST(ParsersFuzz, VocabularyProperties) {
  constexpr int kFiles = 3000;
  const int accepted =
      walk(vocabulary_seeds(), Mutator(6, vocabulary_words()), check_vocabulary, kFiles);
  EXPECT_GT(accepted, kFiles / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kFiles);
}

TEST(ParsersFuzz, SafetensorsProperties) {
  const int accepted =
      walk(safetensors_seeds(), Mutator(2, safetensors_words()), check_safetensors);
  EXPECT_GT(accepted, kInputs / 50) << "too few inputs get past the parser to say much";
  EXPECT_LT(accepted, kInputs);
}

// The header alone changes; its length is put right, so that more inputs reach the layout's checks.
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
