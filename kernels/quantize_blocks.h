// Quantizes numbers to blocks, with the bits of llama.cpp's reference code.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/stored_type.h"

namespace runnel {

// Whether quantize_blocks() supports the type: Q4_0 and Q8_0.
constexpr bool can_quantize(StoredType type) {
  return type == StoredType::kQ4_0 || type == StoredType::kQ8_0;
}

// Quantizes finite numbers, a multiple of 32, to a type for which can_quantize() is true. `to` has
// bytes_of(type, numbers.size()) bytes. A scale that overflows half precision becomes infinite;
// first_bad_block() finds it.
void quantize_blocks(StoredType type, std::span<const float> numbers, std::byte* to);

}  // namespace runnel
