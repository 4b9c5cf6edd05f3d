// Weights as integers of 8 bits.
#pragma once

#include <cstdint>
#include <span>

namespace runnel::cpu {

// Gives a scale, largest size / 127, and in `integers` each weight as the nearest multiple of it,
// ties to even: within +-127. Where the scale is not a normal number it is 0, and so are they.
// Weights are finite.
float quantize(std::span<const float> weights, int8_t* integers);

}  // namespace runnel::cpu
