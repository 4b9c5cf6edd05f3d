// Byte pair encoding. A word begins as one value for each character. Then, repeatedly, the pair of
// neighbours that comes first in the list of merges is replaced by one value.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/work_limit.h"

namespace runnel {

class BytePairs {
 public:
  // `byte_values`: the value of each single byte, for characters without a value.
  explicit BytePairs(const std::array<int32_t, 256>& byte_values) : byte_values_(byte_values) {}

  // Gives a character, in UTF-8, its own value, instead of one value for each byte.
  void add_character(std::string_view character, int32_t value);

  // Adds a merge: `left` followed by `right` becomes `merged`. Merges are added in the order of
  // priority, highest first. Of two merges of the same pair, the later one counts.
  void add_merge(int32_t left, int32_t right, int32_t merged);

  // Appends the values of `word`, which is valid UTF-8. Takes O(n log n) for any word. False if the
  // limit is exceeded.
  [[nodiscard]] bool encode(std::string_view word, WorkLimit& limit,
                            std::vector<int32_t>& values) const;

 private:
  struct Merge {
    int32_t rank = 0, merged = 0;
  };
  class Word;

  const Merge* find(int32_t left, int32_t right) const;
  // Appends the values of the characters and bytes of `word`, before any merge.
  void begin(std::string_view word, std::vector<int32_t>& values) const;

  std::array<int32_t, 256> byte_values_;
  std::unordered_map<uint32_t, int32_t> characters_;  // by their UTF-8
  std::unordered_map<uint64_t, Merge> merges_;        // by pair
  int32_t ranks_ = 0;                                 // the number of merges added
};

}  // namespace runnel
