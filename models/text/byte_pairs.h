// Byte pair encoding: a word begins as one value per character, and the pair of neighbours that
// stands first in the list of merges becomes one value, over and over.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace runnel {

class BytePairs {
 public:
  // `byte_values`: the value of each single byte, for characters that have none of their own.
  explicit BytePairs(const std::array<int32_t, 256>& byte_values) : byte_values_(byte_values) {}

  // `character`, in UTF-8, begins as this value instead of one per byte.
  void add_character(std::string_view character, int32_t value);

  // From here `left` before `right` becomes `merged`. Merges are added most urgent first; of two
  // for the same pair the later one counts.
  void add_merge(int32_t left, int32_t right, int32_t merged);

  // Appends the values of `word`, which is valid UTF-8. O(n log n) in its length, whatever it
  // holds. False past the deadline.
  [[nodiscard]] bool encode(std::string_view word, TimePoint deadline,
                            std::vector<int32_t>& values) const;

 private:
  struct Merge {
    int32_t rank = 0, merged = 0;
  };
  class Word;

  const Merge* find(int32_t left, int32_t right) const;
  // Appends the values with which `word` begins.
  void begin(std::string_view word, std::vector<int32_t>& values) const;

  std::array<int32_t, 256> byte_values_;
  std::unordered_map<uint32_t, int32_t> characters_;  // by their UTF-8
  std::unordered_map<uint64_t, Merge> merges_;        // by pair
  int32_t ranks_ = 0;                                 // given out
};

}  // namespace runnel
