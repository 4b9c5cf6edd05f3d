// How panels keep weights in blocks (docs/decisions/blocks.md).
#pragma once

#include <cstdint>

#include "kernels/stored_type.h"

namespace runnel::cpu {

// A panel is a sequence of units, one for each block of the file: a head, then runs of 32 inputs.
//
// A run is 2 halves of a panel's outputs; each is vectors of 32-bit words, one for each output. A
// word of bytes v has inputs 4 v to 4 v + 3. A word of nibbles v has inputs 8 v to 8 v + 3 in the
// lower halves of its bytes and 8 v + 4 to 8 v + 7 in the upper halves. An integer q is kept as
// q + offset, which is not negative; that of a layout with a table as its place in the table.
//
// Where a block is one run, its fp16 scales follow it. Where it is 8 runs, the head has the fp16
// numbers d of the outputs, with minimums then those of dmin, then the factors of each run: a byte
// for each output, and a second one for the minimum or for the latter 16 inputs.
struct BlockLayout {
  int runs = 1;  // of a block: 1 or 8
  bool nibbles = false;
  bool table = false;  // nibbles are places in kIq4NlBytes
  int offset = 0;
  bool minimum = false;
  bool halves = false;  // 16 inputs share a scale, not 32

  // Vectors of words of a half of a run.
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

// Of a type that has_block_panels().
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

// A run of 32 inputs as integers: its power, the sum of the integers times it, both fp32, the sums
// of the first and the latter 16, and 2 words for each 4 inputs.
inline constexpr int kRunWords = 20;

}  // namespace runnel::cpu
