#include "kernels/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace runnel {
namespace {

constexpr std::array<int8_t, 16> kMxfp4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

// The largest scale of MXFP4 for which every weight is finite: 2^124, because 12 * 2^125 is not
// finite.
constexpr int kMxfp4MostScale = 252;

const uint8_t* bytes_at(const std::byte* from) { return reinterpret_cast<const uint8_t*>(from); }

uint16_t bits_at(const std::byte* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

float half_at(const std::byte* from) { return widened_f16(bits_at(from)); }

// Byte i of 16 holds weight i in its lower half and weight i + 16 in its upper half.
int halved(const uint8_t* bytes, int i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

// A run whose weights are `of(i)` times one scale.
template <typename Of>
BlockRun with_scale(float scale, Of of) {
  BlockRun run{.q = {}, .d = scale};
  for (int i = 0; i < kRun; ++i) run.q[i] = static_cast<int8_t>(of(i));
  return run;
}

BlockRun run_of_q4_0(const std::byte* block) {
  const uint8_t* const nibbles = bytes_at(block + 2);
  return with_scale(half_at(block), [&](int i) { return halved(nibbles, i) - 8; });
}

BlockRun run_of_q5_0(const std::byte* block) {
  uint32_t fifth = 0;
  std::memcpy(&fifth, block + 2, sizeof(fifth));
  const uint8_t* const nibbles = bytes_at(block + 6);
  return with_scale(half_at(block), [&](int i) {
    return (halved(nibbles, i) | static_cast<int>(fifth >> i & 1U) << 4) - 16;
  });
}

BlockRun run_of_q8_0(const std::byte* block) {
  const auto* const q = reinterpret_cast<const int8_t*>(block + 2);
  return with_scale(half_at(block), [&](int i) { return q[i]; });
}

// A run of Q4_K or Q5_K, which has a scale and a minimum of six bits each; a block has 8 runs.
BlockRun with_minimum(const std::byte* block, int part) {
  const RunFactors factors = run_factors(block, part);
  const auto scale = static_cast<int8_t>(factors.scale);
  return {.q = {},
          .d = half_at(block),
          .d_least = half_at(block + 2),
          .factors = {scale, scale},
          .least_factor = static_cast<int8_t>(factors.least)};
}

BlockRun run_of_q4_k(const std::byte* block, int part) {
  BlockRun run = with_minimum(block, part);
  const uint8_t* const nibbles = bytes_at(block + 16) + part / 2 * kRun;
  const int shift = part % 2 * 4;
  for (int i = 0; i < kRun; ++i) run.q[i] = static_cast<int8_t>(nibbles[i] >> shift & 15);
  return run;
}

BlockRun run_of_q5_k(const std::byte* block, int part) {
  BlockRun run = with_minimum(block, part);
  const uint8_t* const fifth = bytes_at(block + 16);
  const uint8_t* const nibbles = bytes_at(block + 48) + part / 2 * kRun;
  const int shift = part % 2 * 4;
  for (int i = 0; i < kRun; ++i) {
    run.q[i] = static_cast<int8_t>((nibbles[i] >> shift & 15) | (fifth[i] >> part & 1) << 4);
  }
  return run;
}

BlockRun run_of_q6_k(const std::byte* block, int part) {
  const int half = part / 4, quarter = part % 4;
  const uint8_t* const lower = bytes_at(block) + 64 * half + 32 * (quarter % 2);
  const uint8_t* const upper = bytes_at(block + 128) + 32 * half;
  const auto* const scales = reinterpret_cast<const int8_t*>(block + 192) + 8 * half + 2 * quarter;
  BlockRun run{.q = {}, .d = half_at(block + 208), .factors = {scales[0], scales[1]}};
  for (int i = 0; i < kRun; ++i) {
    const int low = lower[i] >> (quarter / 2 * 4) & 15;
    run.q[i] = static_cast<int8_t>((low | (upper[i] >> (2 * quarter) & 3) << 4) - 32);
  }
  return run;
}

BlockRun run_of_iq4_nl(const std::byte* block) {
  const uint8_t* const nibbles = bytes_at(block + 2);
  return with_scale(half_at(block), [&](int i) { return kIq4NlValues[halved(nibbles, i)]; });
}

// The scale is a power of two. The values of the table are twice the numbers.
BlockRun run_of_mxfp4(const std::byte* block) {
  const uint8_t* const bytes = bytes_at(block);
  return with_scale(std::ldexp(1.0F, bytes[0] - 128),
                    [&](int i) { return kMxfp4Values[halved(bytes + 1, i)]; });
}

// Whether a half-precision number is a NaN or an infinity.
bool is_bad(const std::byte* half) { return (bits_at(half) & 0x7C00U) == 0x7C00U; }

bool is_bad_block(StoredType type, const std::byte* block) {
  switch (type) {
    case StoredType::kQ4K:
    case StoredType::kQ5K:
      return is_bad(block) || is_bad(block + 2);
    case StoredType::kQ6K:
      return is_bad(block + 208);
    case StoredType::kMxfp4:
      return bytes_at(block)[0] > kMxfp4MostScale;
    default:
      return is_bad(block);
  }
}

}  // namespace

BlockRun block_run(StoredType type, const std::byte* data, int64_t index) {
  const int64_t runs = format_of(type).elements / kRun;
  const std::byte* const block = data + index / runs * format_of(type).bytes;
  const auto part = static_cast<int>(index % runs);
  switch (type) {
    case StoredType::kQ4_0:
      return run_of_q4_0(block);
    case StoredType::kQ5_0:
      return run_of_q5_0(block);
    case StoredType::kQ8_0:
      return run_of_q8_0(block);
    case StoredType::kQ4K:
      return run_of_q4_k(block, part);
    case StoredType::kQ5K:
      return run_of_q5_k(block, part);
    case StoredType::kQ6K:
      return run_of_q6_k(block, part);
    case StoredType::kIq4Nl:
      return run_of_iq4_nl(block);
    case StoredType::kMxfp4:
      return run_of_mxfp4(block);
    default:
      check(false, "a type of blocks");
      return {};
  }
}

void widen_blocks(StoredType type, const std::byte* data, int64_t first, std::span<float> out) {
  while (!out.empty()) {
    const BlockRun run = block_run(type, data, first / kRun);
    const auto from = static_cast<size_t>(first % kRun);
    const size_t count = std::min(out.size(), kRun - from);
    for (size_t i = 0; i < count; ++i) {
      const float product = static_cast<float>(run.q[from + i]) * run.scale((from + i) / 16);
      out[i] = product - run.least();
    }
    first += static_cast<int64_t>(count);
    out = out.subspan(count);
  }
}

int64_t first_bad_block(StoredType type, const std::byte* data, int64_t elements) {
  const StoredFormat& format = format_of(type);
  for (int64_t at = 0; at < elements; at += format.elements) {
    if (is_bad_block(type, data + bytes_of(type, at))) return at;
  }
  return elements;
}

}  // namespace runnel
