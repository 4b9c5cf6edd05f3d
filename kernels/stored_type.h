// The types in which files store numbers: plain types, and blocks of small integers with a scale,
// as in GGUF files.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace runnel {

enum class StoredType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ5_0,
  kQ8_0,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kMxfp4,
};

// A tensor of a type is a sequence of units of `bytes` bytes, each with `elements` elements.
struct StoredFormat {
  const char* name;
  int64_t elements;
  int64_t bytes;
};

inline constexpr std::array<StoredFormat, 11> kStoredFormats = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", 32, 18},
    {"Q5_0", 32, 22},
    {"Q8_0", 32, 34},
    {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
    {"IQ4_NL", 32, 18},
    {"MXFP4", 32, 17},
}};

constexpr const StoredFormat& format_of(StoredType type) {
  return kStoredFormats[static_cast<size_t>(type)];
}

// Whether elements share scales.
constexpr bool is_blocks(StoredType type) { return format_of(type).elements > 1; }

// The bytes of this many elements, a multiple of format_of(type).elements.
constexpr int64_t bytes_of(StoredType type, int64_t elements) {
  return elements / format_of(type).elements * format_of(type).bytes;
}

// Converts the bits of an IEEE half-precision number to fp32. Exact.
inline float widened_f16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  const uint32_t exponent = half >> 10 & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? size : -size;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;  // bias 15 to bias 127
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace runnel
