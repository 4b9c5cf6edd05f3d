// AVX-512: 16 lanes, 32 registers. Numbers of bf16 are widened.
#include <immintrin.h>

#include "kernels/cpu/isa.h"

namespace runnel::cpu {
namespace {

#include "kernels/cpu/avx512_inl.h"

// The even and the odd elements of pairs of bf16, as fp32.
inline Reg even(Reg pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
inline Reg odd(Reg pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
}

#include "kernels/cpu/bf16_inl.h"
#include "kernels/cpu/elementary_inl.h"
#include "kernels/cpu/features_inl.h"
#include "kernels/cpu/kernels_inl.h"

}  // namespace

const Kernels& avx512_kernels() { return kKernels; }

}  // namespace runnel::cpu
