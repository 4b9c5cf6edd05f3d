// Quantizes weights to integers of 8 bits.
#pragma once

#include <cstdint>
#include <span>

namespace runnel::cpu {

// Returns the scale, which is the largest |weight| / 127, and sets `integers` to the nearest
// multiples of it, ties to even, within +-127. If the scale is not a normal number, the scale and
// the integers are 0. Weights must be finite.
float quantize(std::span<const float> weights, int8_t* integers);

}  // namespace runnel::cpu
