// Byte pair encoding: a word begins as one value per byte, and the pair of neighbours that stands
// first in the list of merges becomes one value, over and over.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace runnel {

class BytePairs {
 public:
  // `byte_values`: the value of each single byte.
  explicit BytePairs(const std::array<int32_t, 256>& byte_values) : byte_values_(byte_values) {}

  // From here `left` before `right` becomes `merged`. Merges are added most urgent first; of two
  // for the same pair the later one counts.
  void add_merge(int32_t left, int32_t right, int32_t merged);

  // Appends the values of `word`. O(n log n) in its length, whatever it holds.
  void encode(std::string_view word, std::vector<int32_t>& values) const;

 private:
  struct Merge {
    int32_t rank = 0, merged = 0;
  };
  class Word;

  const Merge* find(int32_t left, int32_t right) const;

  std::array<int32_t, 256> byte_values_;
  std::unordered_map<uint64_t, Merge> merges_;  // by pair
  int32_t ranks_ = 0;                           // given out
};

}  // namespace runnel
