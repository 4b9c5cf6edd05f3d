// Weights in blocks, in the form of GGUF files: each run of 32 weights has integers and scales.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/stored_type.h"

namespace runnel {

inline constexpr int kRun = 32;  // weights of a run

// Weight i is q[i] * scale(i / 16) - least(), in fp32: a multiplication and a subtraction, each
// rounded.
struct BlockRun {
  std::array<int8_t, kRun> q;
  float d = 0.0F, d_least = 0.0F;          // of the block; half precision, except for MXFP4
  std::array<int8_t, 2> factors = {1, 1};  // of the first 16 and the last 16 weights
  int8_t least_factor = 0;

  float scale(int half) const { return d * static_cast<float>(factors[half]); }
  float least() const { return d_least * static_cast<float>(least_factor); }
};

// Entry i is the integer q of a weight whose nibble in IQ4_NL is i.
inline constexpr std::array<int8_t, 16> kIq4NlValues = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};

// The factors of run `part` of a block of Q4_K or Q5_K, six bits each.
struct RunFactors {
  uint8_t scale = 0, least = 0;
};
inline RunFactors run_factors(const std::byte* block, int part) {
  const auto* const packed = reinterpret_cast<const uint8_t*>(block + 4);
  if (part < 4) {
    return {static_cast<uint8_t>(packed[part] & 63), static_cast<uint8_t>(packed[part + 4] & 63)};
  }
  return {static_cast<uint8_t>((packed[part + 4] & 15) | packed[part - 4] >> 6 << 4),
          static_cast<uint8_t>(packed[part + 4] >> 4 | packed[part] >> 6 << 4)};
}

// Whether weights of this type stay in blocks in products. The scales of MXFP4 do not fit half
// precision, so its weights are widened.
constexpr bool has_block_products(StoredType type) {
  return is_blocks(type) && type != StoredType::kMxfp4;
}

// Run `index` of a tensor of blocks that begins at `data`, which need not be aligned.
BlockRun block_run(StoredType type, const std::byte* data, int64_t index);

// Weights [first, first + out.size()) of a tensor of blocks that begins at `data`, as fp32.
void widen_blocks(StoredType type, const std::byte* data, int64_t first, std::span<float> out);

// The index of the first weight of the first block with scales that give infinities or NaNs. If
// there is no such block, `elements`, which is the number of weights.
int64_t first_bad_block(StoredType type, const std::byte* data, int64_t elements);

}  // namespace runnel
