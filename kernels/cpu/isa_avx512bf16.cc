// AVX-512 with its instruction for products of bf16: the sums of fp32 are those of isa_avx512.cc.
#include <immintrin.h>

#include "kernels/cpu/isa.h"
#include "kernels/rules.h"

namespace runnel::cpu {
namespace {

#include "kernels/cpu/avx512_inl.h"

// Two products of bf16 numbers added to each lane, as the instruction does it.
inline Reg dot_pairs(Reg x, Reg w, Reg sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
}

// x [count] rounded to bf16, two to a word; an odd last one beside a zero.
void round_pairs(const float* x, int count, float* pairs) {
  for (int i = 0; i < count; i += kLanes) {
    const int left = count - i;
    const Reg from = left >= kLanes ? load(x + i) : load_n(x + i, left);
    const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(from));
    const int words = left >= kLanes ? kLanes / 2 : (left + 1) / 2;
    _mm256_mask_storeu_epi32(pairs + i / 2, static_cast<__mmask8>((1U << words) - 1U), rounded);
  }
}

#include "kernels/cpu/elementary_inl.h"
#include "kernels/cpu/features_inl.h"
#include "kernels/cpu/kernels_inl.h"

constexpr int kStep = 2;

// x [rows, in] as [rows][words].
void round_rows(const float* x, int64_t x_stride, int rows, int in, float* words) {
  for (int row = 0; row < rows; ++row) {
    round_pairs(x + row * x_stride, in, words + int64_t{row} * ((in + 1) / 2));
  }
}

constexpr Matmul* matmul_rounded = matmul<Factors::kPairs>;

#include "kernels/cpu/recur_inl.h"
#include "kernels/cpu/shift_inl.h"
#include "kernels/cpu/table_inl.h"

}  // namespace

const Kernels& avx512bf16_kernels() { return kKernels; }

}  // namespace runnel::cpu
