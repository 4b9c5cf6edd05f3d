// Any CPU: 4 lanes through the compiler's vector extension, at the architecture's baseline. A
// multiply-add rounds twice here, so the bits differ from those of the other instruction sets.
// Products of bf16 are the exception: their sums are the same everywhere.
#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/isa.h"
#include "kernels/rules.h"

namespace runnel::cpu {
namespace {

using Reg = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kRows = 4;          // 4 x 2 accumulators
constexpr int kAccumulators = 8;  // registers left for sums, besides those for a block's loads
constexpr bool kKeepsPairs = true;
constexpr int kStepRows = 2;

inline Reg set1(float x) { return Reg{x, x, x, x}; }
inline Reg load(const float* p) {
  Reg x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}
inline void store(float* p, Reg x) { __builtin_memcpy(p, &x, sizeof(x)); }
inline void hold(Reg&) {}
inline Reg load_n(const float* p, int n) {
  Reg x = set1(0.0F);
  for (int i = 0; i < n; ++i) x[i] = p[i];
  return x;
}
inline void store_n(float* p, Reg x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x[i];
}
inline Reg first(Reg x, int n) {
  for (int i = n; i < kLanes; ++i) x[i] = 0.0F;
  return x;
}
inline Reg add(Reg a, Reg b) { return a + b; }
inline Reg sub(Reg a, Reg b) { return a - b; }
inline Reg mul(Reg a, Reg b) { return a * b; }
inline Reg div(Reg a, Reg b) { return a / b; }
inline Reg sqrt(Reg x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
inline Reg if_above(Reg x, Reg y, Reg then, Reg otherwise) { return x > y ? then : otherwise; }
// Returns b if either is NaN, as on x86.
inline Reg max(Reg a, Reg b) { return if_above(a, b, a, b); }
inline Reg min(Reg a, Reg b) { return if_above(b, a, a, b); }
inline Reg multiply_add(Reg a, Reg b, Reg c) { return a * b + c; }
// x * 2^n, where `shifted` is 1.5 * 2^23 + n.
inline Reg scale_by_power(Reg x, Reg shifted) {
  const Words exponent = reinterpret_cast<Words>(shifted) << 23;
  return reinterpret_cast<Reg>(reinterpret_cast<Words>(x) + exponent);
}
// Negates x where n of `shifted` is odd.
inline Reg negate_if_odd(Reg x, Reg shifted) {
  const Words sign = reinterpret_cast<Words>(shifted) << 31;
  return reinterpret_cast<Reg>(reinterpret_cast<Words>(x) ^ sign);
}

// Loads bf16 and widens it.
inline Reg load_bf16(const uint16_t* p) {
  uint16_t __attribute__((vector_size(8))) bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return reinterpret_cast<Reg>(__builtin_convertvector(bits, Words) << 16);
}
inline Reg load_int8(const std::byte* p) {
  int8_t __attribute__((vector_size(4))) bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return __builtin_convertvector(bytes, Reg);
}

// x, or a zero of the same sign if x is a denormal.
inline Reg flushed(Reg x) {
  constexpr uint32_t kSize = 0x7fffffff;
  const Words bits = reinterpret_cast<Words>(x);
  const auto small = reinterpret_cast<Words>(reinterpret_cast<Reg>(bits & kSize) < 0x1p-126F);
  return reinterpret_cast<Reg>(bits & ~(small & kSize));
}
// Computes a b + c with one rounding, then flushes denormals; a and b are normal bf16 numbers.
// Their product is exact in double. If double rounds the sum, one term is so small that fp32 would
// round the exact sum to the other term, too. Sums from half a step below the least normal number
// on round up to that number, so only smaller sums are flushed.
inline Reg fused(Reg a, Reg b, Reg c) {
  using Wide = double __attribute__((vector_size(32)));
  using WideWords = uint64_t __attribute__((vector_size(32)));
  constexpr uint64_t kSize = 0x7fffffffffffffff;
  const Wide sum = __builtin_convertvector(a, Wide) * __builtin_convertvector(b, Wide) +
                   __builtin_convertvector(c, Wide);
  const WideWords bits = reinterpret_cast<WideWords>(sum);
  const auto small =
      reinterpret_cast<WideWords>(reinterpret_cast<Wide>(bits & kSize) < 0x1.ffffffp-127);
  return __builtin_convertvector(reinterpret_cast<Wide>(bits & ~(small & kSize)), Reg);
}
class FlushDenormals {
 public:
  FlushDenormals() {}  // flushed() flushes instead
};
// Rounds to bf16, to nearest, ties to even. NaN stays NaN.
inline Reg nearest_bf16(Reg x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Words kept = (bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U;
  const Words none = {0x7fc00000U, 0x7fc00000U, 0x7fc00000U, 0x7fc00000U};
  return x == x ? reinterpret_cast<Reg>(kept) : reinterpret_cast<Reg>(none);
}

// The even and the odd elements of pairs of bf16, as fp32.
inline Reg even(Reg pairs) { return reinterpret_cast<Reg>(reinterpret_cast<Words>(pairs) << 16); }
inline Reg odd(Reg pairs) {
  return reinterpret_cast<Reg>(reinterpret_cast<Words>(pairs) & 0xffff0000U);
}

#include "kernels/cpu/bf16_inl.h"
#include "kernels/cpu/elementary_inl.h"
#include "kernels/cpu/features_inl.h"
#include "kernels/cpu/kernels_inl.h"
#include "kernels/cpu/recur_inl.h"
#include "kernels/cpu/shift_inl.h"
#include "kernels/cpu/softmax_inl.h"
#include "kernels/cpu/step32_inl.h"

inline Reg load_half(const std::byte* p) {
  uint16_t bits[kLanes];
  __builtin_memcpy(bits, p, sizeof(bits));
  return Reg{widened_f16(bits[0]), widened_f16(bits[1]), widened_f16(bits[2]),
             widened_f16(bits[3])};
}

using Ints = int32_t __attribute__((vector_size(16)));
inline Ints no_ints() { return Ints{}; }
inline Ints same_ints(int32_t x) { return Ints{} + x; }
inline Ints load_ints(const std::byte* p) {
  Ints x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}
inline Ints lower_nibbles(Ints w) { return w & 0x0f0f0f0f; }
inline Ints upper_nibbles(Ints w) { return lower_nibbles(w >> 4); }
// Looks up nibbles, one per byte, in a table of 16 bytes.
inline Ints looked_up(Ints nibbles, const uint8_t* table) {
  uint8_t bytes[sizeof(Ints)];
  __builtin_memcpy(bytes, &nibbles, sizeof(bytes));
  for (uint8_t& byte : bytes) byte = table[byte];
  __builtin_memcpy(&nibbles, bytes, sizeof(bytes));
  return nibbles;
}
// float(x), rounded to nearest.
inline Reg to_numbers(Ints x) { return __builtin_convertvector(x, Reg); }
constexpr int kBlockRows = 4, kBothHalves = 4;
// Adds the products of the four unsigned bytes of each word and four integers.
inline void add_products(Ints bytes, const int32_t* x, Ints (&sums)[2]) {
  const auto lower = [](int32_t pair) { return static_cast<int32_t>(static_cast<int16_t>(pair)); };
  sums[0] += (bytes & 255) * lower(x[0]) + (bytes >> 16 & 255) * (x[0] >> 16);
  sums[1] += (bytes >> 8 & 255) * lower(x[1]) + (bytes >> 24 & 255) * (x[1] >> 16);
}
inline Ints sum_of(const Ints (&sums)[2]) { return sums[0] + sums[1]; }

inline int32_t largest_size(const float* x) {
  int32_t most = 0;
  for (int i = 0; i < kStepInputs; ++i) {
    int32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return most;
}
// A word has two 16-bit numbers: the first and the third of four, then the second and the fourth.
inline void put_integers(const float* x, float factor, int32_t* words, int32_t (&sums)[2]) {
  constexpr float kWhole = 0x1.8p23F;  // a number added to it is rounded to an integer
  int32_t v[kStepInputs];
  for (int i = 0; i < kStepInputs; ++i) {
    v[i] = static_cast<int32_t>(x[i] * factor + kWhole - kWhole);
  }
  int32_t first = 0, latter = 0;
  for (int i = 0; i < kStepInputs / 2; ++i) {
    first += v[i];
    latter += v[kStepInputs / 2 + i];
  }
  sums[0] = first;
  sums[1] = latter;
  const auto pair = [&](int low, int high) {
    return static_cast<int32_t>((v[low] & 0xffff) | static_cast<uint32_t>(v[high]) << 16);
  };
  for (int i = 0; i < kStepInputs; i += 4, words += 2) {
    words[0] = pair(i, i + 2);
    words[1] = pair(i + 1, i + 3);
  }
}

#include "kernels/cpu/blocks_inl.h"

constexpr int kStep = kStepInputs;
constexpr int kFewestFarInputs = 16;
constexpr auto* round_rows = round_steps;
constexpr auto* round_int8 = round_steps;
constexpr Matmul* matmul_rounded = matmul_steps<Pairs>;
constexpr Matmul* matmul_int8 = matmul_steps<Int8Rows>;

#include "kernels/cpu/table_inl.h"

}  // namespace

const Kernels& portable_kernels() { return kKernels; }

}  // namespace runnel::cpu
