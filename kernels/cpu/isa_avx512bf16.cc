// AVX-512 with its instructions for products of bf16 and of bytes. The sums of fp32 are those of
// isa_avx512.cc.
#include <immintrin.h>

#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/isa.h"
#include "kernels/rules.h"

namespace runnel::cpu {
namespace {

#include "kernels/cpu/avx512_inl.h"

// Adds the products of two pairs of bf16 numbers to each lane, as the instruction does.
inline Reg dot_pairs(Reg x, Reg w, Reg sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
}

// Rounds x [count] to bf16, two numbers per word. If count is odd, the last word ends with a zero.
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
constexpr int kFewestFarInputs = 8;

// Rounds x [rows, in] to [rows][words].
void round_rows(const float* x, int64_t x_stride, int rows, int in, float* words) {
  for (int row = 0; row < rows; ++row) {
    round_pairs(x + row * x_stride, in, words + int64_t{row} * ((in + 1) / 2));
  }
}

constexpr Matmul* matmul_rounded = matmul<Factors::kPairs>;

#include "kernels/cpu/flush_inl.h"
#include "kernels/cpu/recur_inl.h"
#include "kernels/cpu/shift_inl.h"
#include "kernels/cpu/softmax_inl.h"
#include "kernels/cpu/step32_inl.h"

// Products of int8 by the instruction, in the order of tiles. The instruction adds the upper
// product of a pair first. So the pairs of inputs 0 and 2, 4 and 6, ... form the chain of the even
// inputs.
struct Dots {
  static constexpr int kBytes = 8 * kPanel;  // a row of words for each chain
  static constexpr int kNumbers = kStepInputs / 2;
  static constexpr bool kScaled = true;
  static RUNNEL_INLINE Reg take(const std::byte* w, int chain, int j) {
    return load(reinterpret_cast<const float*>(w) + chain * kPanel + j * kLanes);
  }
  static RUNNEL_INLINE Reg multiply(Reg x, Reg w, Reg sum) { return dot_pairs(x, w, sum); }
};

constexpr int kFewestRows = 4;  // with fewer, widening a panel does not pay

// Rounds x [rows, in] to bf16 words [rows][steps][16]. Of every four inputs, one word holds the
// first and the third, and the next word the second and the fourth.
void round_dots(const float* x, int64_t x_stride, int rows, int in, float* to) {
  alignas(64) constexpr int16_t kPlaces[32] = {2,  0,  3,  1,  6,  4,  7,  5,  10, 8,  11,
                                               9,  14, 12, 15, 13, 18, 16, 19, 17, 22, 20,
                                               23, 21, 26, 24, 27, 25, 30, 28, 31, 29};
  const __m512i places = _mm512_load_si512(kPlaces);
  for (int row = 0; row < rows; ++row, x += x_stride) {
    for (int k = 0; k < in; k += kStepInputs, to += Dots::kNumbers) {
      const int left = in - k;
      const Reg low = left >= kLanes ? load(x + k) : load_n(x + k, left);
      const Reg high = left >= kStepInputs ? load(x + k + kLanes)
                       : left > kLanes     ? load_n(x + k + kLanes, left - kLanes)
                                           : set1(0.0F);
      const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      _mm512_storeu_si512(to, _mm512_permutexvar_epi16(places, rounded));
    }
  }
}

// Widens rows of int8 to such words. This is exact: the bits of fp32 that bf16 lacks are zeros.
// Prefetches up to `end`.
void widen_panel(const std::byte* rows, int steps, const std::byte* end, float* to) {
  const auto bits = [&](int row, int col) {
    return _mm512_castps_si512(load_int8(rows + row * kPanel + col));
  };
  for (int k = 0; k < steps * kStepInputs; k += 4, rows += 4 * kPanel, to += 2 * kPanel) {
    const int64_t ahead = end - rows > kStepAhead ? kStepAhead : 0;
    __builtin_prefetch(rows + ahead);
    __builtin_prefetch(rows + ahead + 64);
    for (int col = 0; col < kPanel; col += kLanes) {
      for (int chain = 0; chain < 2; ++chain) {
        const __m512i later = _mm512_srli_epi32(bits(chain + 2, col), 16);
        _mm512_storeu_si512(to + chain * kPanel + col, _mm512_or_si512(bits(chain, col), later));
      }
    }
  }
}

void round_int8(const float* x, int64_t x_stride, int rows, int in, float* to) {
  (rows < kFewestRows ? round_steps : round_dots)(x, x_stride, rows, in, to);
}

void matmul_int8(const MatmulArgs& args, int rows, int panel_begin, int panel_end) {
  if (rows < kFewestRows) return matmul_steps<Int8Rows>(args, rows, panel_begin, panel_end);
  const int steps = steps_of(args.in);
  const int64_t bytes = int64_t{steps} * kStepInputs * kPanel;  // in a panel
  const auto* panels = reinterpret_cast<const std::byte*>(args.panels);
  MatmulArgs one = args;  // for one panel, whose words are in `room`
  one.panels = args.room;
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    const int col = panel * kPanel;
    widen_panel(panels + panel * bytes, steps, panels + panel_end * bytes, args.room);
    one.bias = args.bias + col;
    one.scales = args.scales + col;
    one.out = args.out - col;
    if (args.times.data != nullptr) one.times.data = args.times.data + col;
    if (args.plus.data != nullptr) one.plus.data = args.plus.data + col;
    one.y = args.y + col;
    matmul_steps<Dots>(one, rows, 0, 1);
  }
}

#include "kernels/cpu/vnni_inl.h"
// These must come after the functions that they use.
#include "kernels/cpu/block_integers_inl.h"
#include "kernels/cpu/blocks_inl.h"
#include "kernels/cpu/table_inl.h"

}  // namespace

const Kernels& avx512bf16_kernels() { return kKernels; }

}  // namespace runnel::cpu
