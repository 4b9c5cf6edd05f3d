// AVX-512: 16 lanes, 32 registers. Numbers of bf16 are widened, and added up as tiles do.
#include <immintrin.h>

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
#include "kernels/cpu/step32_inl.h"

constexpr int kStep = kStepInputs;
constexpr auto* round_rows = round_steps;
constexpr auto* round_int8 = round_steps;
constexpr Matmul* matmul_rounded = matmul_steps<Pairs>;
constexpr Matmul* matmul_int8 = matmul_steps<Int8Rows>;

#include "kernels/cpu/table_inl.h"

}  // namespace

const Kernels& avx512_kernels() { return kKernels; }

}  // namespace runnel::cpu
