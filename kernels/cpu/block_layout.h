// The layout of weights in blocks within panels (docs/decisions/blocks.md).
#pragma once

#include <cstdint>

#include "kernels/stored_type.h"

namespace runnel::cpu {

// A panel is a sequence of units, one for each block of the file: a head, then runs of 32 inputs.
//
// A run has 2 halves, one for each half of the panel's outputs. A half is a list of vectors of
// 32-bit words, with a word for each output. With bytes, word v has inputs 4 v to 4 v + 3. With
// nibbles, it has inputs 8 v to 8 v + 3 in the lower halves of its bytes, and 8 v + 4 to 8 v + 7 in
// the upper halves. An integer q is stored as q + offset, which is not negative. In a layout with a
// table, the integer's index in the table is stored instead.
//
// If a block is one run, its fp16 scales follow the run. If a block is 8 runs, the head has the
// fp16 numbers d of the outputs, and with minimums also dmin. Then come the factors of each run: a
// byte for each output, and a second byte for the minimum or for the last 16 inputs.
struct BlockLayout {
  int runs = 1;  // in a block: 1 or 8
  bool nibbles = false;
  bool table = false;  // nibbles are indices in kIq4NlBytes
  int offset = 0;
  bool minimum = false;
  bool halves = false;  // 16 inputs share a scale instead of 32

  // The vectors of words in a half of a run.
  constexpr int vectors() const { return nibbles ? 4 : 8; }
  constexpr int factors() const { return minimum || halves ? 2 : 1; }
  constexpr int64_t head_bytes(int panel) const {
    return runs == 1 ? 0 : int64_t{panel} * ((minimum ? 4 : 2) + runs * factors());
  }
  constexpr int64_t words_bytes(int panel) const { return int64_t{4} * vectors() * panel; }
  constexpr int64_t run_bytes(int panel) const {
    return words_bytes(panel) + (runs == 1 ? 2 * panel : 0);
  }
  constexpr int64_t unit_bytes(int panel) const {
    return head_bytes(panel) + runs * run_bytes(panel);
  }
};

inline constexpr BlockLayout kQ4_0Layout = {.nibbles = true, .offset = 8};
inline constexpr BlockLayout kIq4NlLayout = {.nibbles = true, .table = true, .offset = 128};
inline constexpr BlockLayout kBytesLayout = {.offset = 128};
inline constexpr BlockLayout kQ4KLayout = {.runs = 8, .nibbles = true, .minimum = true};
inline constexpr BlockLayout kQ5KLayout = {.runs = 8, .offset = 128, .minimum = true};
inline constexpr BlockLayout kQ6KLayout = {.runs = 8, .offset = 128, .halves = true};

// The layout of a type with has_block_products().
constexpr BlockLayout block_layout(StoredType type) {
  switch (type) {
    case StoredType::kQ4_0:
      return kQ4_0Layout;
    case StoredType::kIq4Nl:
      return kIq4NlLayout;
    case StoredType::kQ4K:
      return kQ4KLayout;
    case StoredType::kQ5K:
      return kQ5KLayout;
    case StoredType::kQ6K:
      return kQ6KLayout;
    default:
      return kBytesLayout;
  }
}

// kIq4NlValues + 128. Not inline: each instruction set has its own copy (isa.h).
alignas(16) constexpr uint8_t kIq4NlBytes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                 129, 141, 153, 166, 181, 197, 217, 241};

// The words of a run of 32 inputs that were converted to integers. Word 0 is the power, and word 1
// the sum of the integers times the power, both fp32. Words 2 to 5 are integers that take back the
// weights' offset (offset_word()). Then come 2 words for each 4 inputs.
inline constexpr int kFirstInput = 6;
inline constexpr int kRunWords = kFirstInput + 16;

// The word of a run that has minus the offset, times the sum of the inputs that share a scale. With
// `halves` these are the first or the last 16 inputs, as `part` says. Not for an offset of 0.
constexpr int offset_word(const BlockLayout& layout, int part) {
  if (layout.halves) return 2 + part;
  return layout.offset == 128 ? 4 : 5;
}

}  // namespace runnel::cpu
