#include "kernels/quantize_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "kernels/blocks.h"

namespace runnel {
namespace {

using Run = std::span<const float, kRun>;

// The bits of the half-precision number nearest to `number`, ties to even.
uint16_t rounded_f16(float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const uint32_t size = bits & 0x7FFFFFFFU;
  if (size >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65520 and above
  if (size < 0x38800000U) {  // below 2^-14: a multiple of 2^-24
    return static_cast<uint16_t>(
        sign | static_cast<uint32_t>(std::nearbyint(std::fabs(number) * 0x1p24F)));
  }
  const uint32_t rounded = size + 0xFFFU + (size >> 13 & 1U);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

// 1 / scale; 0 if that could overflow fp32. Half precision rounds such scales to 0.
float inverse_of(float scale) { return std::fabs(scale) < 0x1p-100F ? 0.0F : 1.0F / scale; }

void put_scale(float scale, std::byte* to) {
  const uint16_t bits = rounded_f16(scale);
  std::memcpy(to, &bits, sizeof(bits));
}

// The number of the largest magnitude gets the integer -8.
void quantize_q4_0(Run numbers, std::byte* to) {
  const float most =
      *std::ranges::max_element(numbers, {}, [](float number) { return std::fabs(number); });
  const float scale = most / -8.0F;
  const float inverse = inverse_of(scale);
  put_scale(scale, to);
  const auto nibble = [&](int i) {
    return std::min(15, static_cast<int>(numbers[i] * inverse + 8.5F));
  };
  for (int i = 0; i < kRun / 2; ++i) {
    to[2 + i] = static_cast<std::byte>(nibble(i) | nibble(i + kRun / 2) << 4);
  }
}

void quantize_q8_0(Run numbers, std::byte* to) {
  float most = 0.0F;
  for (const float number : numbers) most = std::max(most, std::fabs(number));
  const float scale = most / 127.0F;
  const float inverse = inverse_of(scale);
  put_scale(scale, to);
  for (int i = 0; i < kRun; ++i) {
    to[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(numbers[i] * inverse)));
  }
}

}  // namespace

void quantize_blocks(StoredType type, std::span<const float> numbers, std::byte* to) {
  check(can_quantize(type) && numbers.size() % kRun == 0, "whole blocks of a type that is written");
  const auto quantize = type == StoredType::kQ4_0 ? quantize_q4_0 : quantize_q8_0;
  for (; !numbers.empty(); numbers = numbers.subspan(kRun), to += format_of(type).bytes) {
    quantize(numbers.first<kRun>(), to);
  }
}

}  // namespace runnel
