// AVX-512: 16 lanes, 32 registers. Numbers of bf16 are widened, and added in the order of tiles.
#include <immintrin.h>

#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/isa.h"
#include "kernels/rules.h"

namespace runnel::cpu {
namespace {

#include "kernels/cpu/avx512_inl.h"
#include "kernels/cpu/bf16_inl.h"
#include "kernels/cpu/elementary_inl.h"
#include "kernels/cpu/features_inl.h"
#include "kernels/cpu/flush_inl.h"
#include "kernels/cpu/kernels_inl.h"
#include "kernels/cpu/recur_inl.h"
#include "kernels/cpu/shift_inl.h"
#include "kernels/cpu/softmax_inl.h"
#include "kernels/cpu/step32_inl.h"

constexpr bool kPlanes = false;
// Adds the products of the four unsigned bytes of each word and four integers.
inline void add_products(Ints bytes, const int32_t* x, Ints (&sums)[2]) {
  const Ints mask = _mm512_set1_epi32(0x00ff00ff);
  const Ints even_bytes = _mm512_and_si512(bytes, mask);
  const Ints odd_bytes = _mm512_and_si512(_mm512_srli_epi32(bytes, 8), mask);
  sums[0] = _mm512_add_epi32(sums[0], _mm512_madd_epi16(even_bytes, _mm512_set1_epi32(x[0])));
  sums[1] = _mm512_add_epi32(sums[1], _mm512_madd_epi16(odd_bytes, _mm512_set1_epi32(x[1])));
  // Without this, the compiler first multiplies all, and stores the products on the stack.
  asm("" : "+v"(sums[0]), "+v"(sums[1]));
}
inline Ints sum_of(const Ints (&sums)[2]) { return _mm512_add_epi32(sums[0], sums[1]); }

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

const Kernels& avx512_kernels() { return kKernels; }

}  // namespace runnel::cpu
