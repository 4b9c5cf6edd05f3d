// AVX2 with FMA: 8 lanes, 16 registers.
#include <immintrin.h>

#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/isa.h"
#include "kernels/rules.h"

namespace runnel::cpu {
namespace {

using Reg = __m256;
constexpr int kLanes = 8;
constexpr int kRows = 6;           // 6 x 2 accumulators, 2 of the panel, 1 of x
constexpr int kAccumulators = 12;  // registers left for sums, besides those for a block's loads
constexpr bool kKeepsPairs = false;
constexpr int kStepRows = 3;

// Eight words with all bits set, then eight without: the mask of n lanes starts at 8 - n.
alignas(32) constexpr int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

inline Reg set1(float x) { return _mm256_set1_ps(x); }
inline Reg load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Reg x) { _mm256_storeu_ps(p, x); }
inline void hold(Reg&) {}
inline __m256i lanes(int n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + kLanes - n));
}
inline Reg first(Reg x, int n) { return _mm256_and_ps(x, _mm256_castsi256_ps(lanes(n))); }
inline Reg load_n(const float* p, int n) { return _mm256_maskload_ps(p, lanes(n)); }
inline void store_n(float* p, Reg x, int n) { _mm256_maskstore_ps(p, lanes(n), x); }
inline Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
inline Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
inline Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
inline Reg div(Reg a, Reg b) { return _mm256_div_ps(a, b); }
inline Reg sqrt(Reg x) { return _mm256_sqrt_ps(x); }
inline Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
inline Reg min(Reg a, Reg b) { return _mm256_min_ps(a, b); }
inline Reg multiply_add(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
inline Reg if_above(Reg x, Reg y, Reg then, Reg otherwise) {
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(x, y, _CMP_GT_OQ));
}
// x * 2^n, where `shifted` is 1.5 * 2^23 + n.
inline Reg scale_by_power(Reg x, Reg shifted) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
}
// Negates x where n of `shifted` is odd.
inline Reg negate_if_odd(Reg x, Reg shifted) {
  return _mm256_xor_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(shifted), 31)));
}

// Loads bf16 and widens it.
inline Reg load_bf16(const uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Reg load_int8(const std::byte* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

inline Reg fused(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
inline Reg flushed(Reg x) { return x; }  // the processor flushes
// Rounds to bf16, to nearest, ties to even. NaN stays NaN.
inline Reg nearest_bf16(Reg x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const Reg kept = _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(-65536)));
  const Reg none = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  return _mm256_blendv_ps(kept, none, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

// The even and the odd elements of pairs of bf16, as fp32.
inline Reg even(Reg pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
inline Reg odd(Reg pairs) {
  return _mm256_and_ps(pairs, _mm256_castsi256_ps(_mm256_set1_epi32(-65536)));
}

#include "kernels/cpu/bf16_inl.h"
#include "kernels/cpu/elementary_inl.h"
#include "kernels/cpu/features_inl.h"
#include "kernels/cpu/flush_inl.h"
#include "kernels/cpu/kernels_inl.h"
#include "kernels/cpu/recur_inl.h"
#include "kernels/cpu/shift_inl.h"
#include "kernels/cpu/softmax_inl.h"
#include "kernels/cpu/step32_inl.h"

// Loads half-precision numbers, including denormals, whatever the flush mode is.
inline Reg load_half(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

using Ints = __m256i;
inline Ints no_ints() { return _mm256_setzero_si256(); }
inline Ints same_ints(int32_t x) { return _mm256_set1_epi32(x); }
inline Ints load_ints(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Ints lower_nibbles(Ints w) { return _mm256_and_si256(w, _mm256_set1_epi8(15)); }
inline Ints upper_nibbles(Ints w) { return lower_nibbles(_mm256_srli_epi32(w, 4)); }
// Looks up nibbles, one per byte, in a table of 16 bytes.
inline Ints looked_up(Ints nibbles, const uint8_t* table) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), nibbles);
}
// float(x), rounded to nearest.
inline Reg to_numbers(Ints x) { return _mm256_cvtepi32_ps(x); }
constexpr bool kPlanes = false;
constexpr int kBlockRows = 6, kBothHalves = 1;
// Adds the products of the four unsigned bytes of each word and four integers.
inline void add_products(Ints bytes, const int32_t* x, Ints (&sums)[2]) {
  const Ints mask = _mm256_set1_epi32(0x00ff00ff);
  const Ints even_bytes = _mm256_and_si256(bytes, mask);
  const Ints odd_bytes = _mm256_and_si256(_mm256_srli_epi32(bytes, 8), mask);
  sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(even_bytes, _mm256_set1_epi32(x[0])));
  sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(odd_bytes, _mm256_set1_epi32(x[1])));
  // Without this, the compiler first multiplies all, and stores the products on the stack.
  asm("" : "+x"(sums[0]), "+x"(sums[1]));
}
inline Ints sum_of(const Ints (&sums)[2]) { return _mm256_add_epi32(sums[0], sums[1]); }

#include "kernels/cpu/block_integers_inl.h"
#include "kernels/cpu/blocks_inl.h"

constexpr int kStep = kStepInputs;
constexpr int kFewestFarInputs = 16;
constexpr auto* round_rows = round_steps;
constexpr auto* round_int8 = round_steps;
constexpr Matmul* matmul_rounded = matmul_steps<Pairs>;
constexpr Matmul* matmul_int8 = matmul_steps<Int8Rows>;

#include "kernels/cpu/table_inl.h"

}  // namespace

const Kernels& avx2_kernels() { return kKernels; }

}  // namespace runnel::cpu
