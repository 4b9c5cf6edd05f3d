// Seeded, bounded mutations of well-formed inputs, for the ordinary tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace runnel {

inline constexpr int kInputs = 50000;
inline constexpr size_t kMaxInput = 4096;

class Mutator {
 public:
  Mutator(uint64_t seed, std::span<const std::string_view> words) : bits_(seed), words_(words) {}

  // A random number below `end`.
  size_t below(size_t end) { return bits_() % end; }

  // Makes one to three small changes.
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

  // Replaces the digits at or after `at` with another small number. Most inputs stay well-formed.
  void replace_number(std::string& input, size_t at) {
    const size_t begin = input.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(input.find_first_not_of("0123456789", begin), input.size());
    input.replace(begin, end - begin, std::to_string(below(40)));
  }

  // Replaces the text between two separators with `word`.
  void replace_token(std::string& input, size_t at, std::string_view word) {
    const size_t begin = input.find_first_of(":[,", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(input.find_first_of(",]}", begin + 1), input.size());
    input.replace(begin + 1, end - begin - 1, word);
  }

  std::mt19937_64 bits_;
  std::span<const std::string_view> words_;
};

// Mutates inputs of a pool, and adds accepted ones to it. Returns how many were accepted.
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

}  // namespace runnel
