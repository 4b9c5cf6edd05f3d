#include "kernels/cpu/block_panels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/blocks.h"
#include "kernels/cpu/block_layout.h"

namespace runnel::cpu {
namespace {

static_assert(std::ranges::equal(kIq4NlBytes, kIq4NlValues, {}, {}, [](int q) { return q + 128; }));

// A word whose eight bytes are all `byte`.
constexpr uint64_t eightfold(uint8_t byte) { return byte * 0x0101010101010101U; }

uint64_t word_at(const std::byte* from) {
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Nibbles 8 v to 8 v + 7 of 16 bytes, whose lower halves hold the first 16 nibbles and whose upper
// halves hold the last 16.
uint64_t halved(const std::byte* bytes, int v) {
  return word_at(bytes + v % 2 * 8) >> (v / 2 * 4) & eightfold(15);
}

// One byte per bit: 16 if the bit is set.
uint64_t sixteens(std::byte bits) {
  const uint64_t set = eightfold(static_cast<uint8_t>(bits)) & 0x8040201008040201U;
  return ((set + eightfold(0x7F)) & eightfold(0x80)) >> 3;
}

// Inputs 8 v to 8 v + 7 of run `part` of a block, in the form of the layout, one byte each. No sum
// of two bytes exceeds 255, so eight bytes are added as one word.
template <StoredType kType>
uint64_t eight_of(const std::byte* block, int part, int v) {
  if constexpr (kType == StoredType::kQ4_0 || kType == StoredType::kIq4Nl) {
    return halved(block + 2, v);
  }
  if constexpr (kType == StoredType::kQ5_0) {
    return (halved(block + 6, v) | sixteens(block[2 + v])) + eightfold(128 - 16);
  }
  if constexpr (kType == StoredType::kQ8_0) return word_at(block + 2 + 8 * v) ^ eightfold(128);
  if constexpr (kType == StoredType::kQ4K) {
    return word_at(block + 16 + part / 2 * kRun + 8 * v) >> (part % 2 * 4) & eightfold(15);
  }
  if constexpr (kType == StoredType::kQ5K) {
    const uint64_t lower = word_at(block + 48 + part / 2 * kRun + 8 * v) >> (part % 2 * 4);
    const uint64_t fifth = word_at(block + 16 + 8 * v) >> part;
    return (lower & eightfold(15)) + ((fifth & eightfold(1)) << 4) + eightfold(128);
  }
  if constexpr (kType == StoredType::kQ6K) {
    const int half = part / 4, quarter = part % 4;
    const uint64_t lower = word_at(block + 64 * half + 32 * (quarter % 2) + 8 * v);
    const uint64_t upper = word_at(block + 128 + 32 * half + 8 * v) >> (2 * quarter);
    return (lower >> (quarter / 2 * 4) & eightfold(15)) + ((upper & eightfold(3)) << 4) +
           eightfold(128 - 32);
  }
}

// Writes a half-precision number of output `lane`.
void put_half(const std::byte* number, std::byte* row, int lane) {
  std::memcpy(row + 2 * lane, number, 2);
}

// Writes the scales of a block of 8 runs into the head of its unit.
template <StoredType kType>
void put_head(const std::byte* block, int panel, int lane, std::byte* unit) {
  constexpr BlockLayout kLayout = block_layout(kType);
  put_half(kLayout.halves ? block + 208 : block, unit, lane);
  if constexpr (kLayout.minimum) put_half(block + 2, unit + 2 * panel, lane);
  std::byte* factors = unit + panel * (kLayout.minimum ? 4 : 2) + lane;
  for (int part = 0; part < kLayout.runs; ++part, factors += 2 * panel) {
    if constexpr (kLayout.minimum) {
      const RunFactors of_run = run_factors(block, part);
      factors[0] = static_cast<std::byte>(of_run.scale);
      factors[panel] = static_cast<std::byte>(of_run.least);
    } else {
      factors[0] = block[192 + 2 * part];
      factors[panel] = block[192 + 2 * part + 1];
    }
  }
}

// Writes one block of output `lane` of a panel into its unit.
template <StoredType kType>
void pack_block(const std::byte* block, int panel, int lane, std::byte* unit) {
  constexpr BlockLayout kLayout = block_layout(kType);
  const int lanes = panel / 2;  // in a vector
  for (int part = 0; part < kLayout.runs; ++part) {
    std::byte* const words = unit + kLayout.head_bytes(panel) + part * kLayout.run_bytes(panel);
    std::byte* to = words + lane / lanes * (kLayout.words_bytes(panel) / 2) + lane % lanes * 4;
    const auto put = [&](uint64_t numbers) {
      const auto word = static_cast<uint32_t>(numbers);
      std::memcpy(to, &word, sizeof(word));
      to += lanes * 4;
    };
    for (int v = 0; v < kRun / 8; ++v) {
      const uint64_t eight = eight_of<kType>(block, part, v);
      put(kLayout.nibbles ? eight | eight >> 28 : eight);
      if (!kLayout.nibbles) put(eight >> 32);
    }
    if constexpr (kLayout.runs == 1) put_half(block, words + kLayout.words_bytes(panel), lane);
  }
  if constexpr (kLayout.runs > 1) put_head<kType>(block, panel, lane, unit);
}

template <StoredType kType>
void pack_panel(const HostTensor& weight, int panel, int64_t index, std::byte* to) {
  const int64_t blocks = weight.cols / format_of(kType).elements;  // in a row
  const int64_t row_bytes = blocks * format_of(kType).bytes;
  const int64_t first = index * panel;
  const auto rows = static_cast<int>(std::min<int64_t>(panel, weight.rows - first));
  const std::byte* const from = static_cast<const std::byte*>(weight.data) + first * row_bytes;
  for (int64_t at = 0; at < row_bytes; at += format_of(kType).bytes) {
    for (int lane = 0; lane < rows; ++lane) {
      pack_block<kType>(from + lane * row_bytes + at, panel, lane, to);
    }
    to += block_layout(kType).unit_bytes(panel);
  }
}

}  // namespace

int64_t block_panel_bytes(const HostTensor& weight, int panel) {
  return weight.cols / format_of(weight.stored).elements *
         block_layout(weight.stored).unit_bytes(panel);
}

void pack_block_panel(const HostTensor& weight, int panel, int64_t index, std::byte* to) {
  switch (weight.stored) {
    case StoredType::kQ4_0:
      return pack_panel<StoredType::kQ4_0>(weight, panel, index, to);
    case StoredType::kQ5_0:
      return pack_panel<StoredType::kQ5_0>(weight, panel, index, to);
    case StoredType::kQ8_0:
      return pack_panel<StoredType::kQ8_0>(weight, panel, index, to);
    case StoredType::kQ4K:
      return pack_panel<StoredType::kQ4K>(weight, panel, index, to);
    case StoredType::kQ5K:
      return pack_panel<StoredType::kQ5K>(weight, panel, index, to);
    case StoredType::kQ6K:
      return pack_panel<StoredType::kQ6K>(weight, panel, index, to);
    case StoredType::kIq4Nl:
      return pack_panel<StoredType::kIq4Nl>(weight, panel, index, to);
    default:
      check(false, "pack: a type that has_block_products()");
  }
}

}  // namespace runnel::cpu
