#include "kernels/cpu/quantize.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace runnel::cpu {
namespace {

// The magnitude of a number as bits, which compare like magnitudes.
int32_t size_bits(float x) { return std::bit_cast<int32_t>(x) & 0x7fffffff; }

}  // namespace

float quantize(std::span<const float> weights, int8_t* integers) {
  constexpr float kWhole = 0x1.8p23F;  // adding this rounds a number to an integer
  int32_t largest = 0;
  for (const float w : weights) largest = std::max(largest, size_bits(w));
  const float scale = std::bit_cast<float>(largest) / 127.0F;
  check(scale <= std::numeric_limits<float>::max(), "pack: weights in int8 are finite");
  if (scale < std::numeric_limits<float>::min()) {
    std::ranges::fill_n(integers, std::ssize(weights), 0);
    return 0.0F;
  }
  // No quotient rounds to more than 127: the largest is within 127 (1 +- 2^-23).
  for (size_t i = 0; i < weights.size(); ++i) {
    integers[i] = static_cast<int8_t>(static_cast<int32_t>(weights[i] / scale + kWhole - kWhole));
  }
  return scale;
}

}  // namespace runnel::cpu
