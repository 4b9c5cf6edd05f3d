// Any CPU: 4 lanes through the compiler's vector extension, at the architecture's baseline. A
// multiply-add is two roundings here, so its bits are not those of the other instruction sets.
#include "kernels/cpu/isa.h"
#include "kernels/rules.h"

namespace runnel::cpu {
namespace {

using Reg = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kRows = 4;          // 4 x 2 accumulators
constexpr int kAccumulators = 8;  // that fit beside what a block loads

inline Reg set1(float x) { return Reg{x, x, x, x}; }
inline Reg load(const float* p) {
  Reg x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}
inline void store(float* p, Reg x) { __builtin_memcpy(p, &x, sizeof(x)); }
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
// b where either is not a number, as on x86.
inline Reg max(Reg a, Reg b) { return if_above(a, b, a, b); }
inline Reg min(Reg a, Reg b) { return if_above(b, a, a, b); }
inline Reg multiply_add(Reg a, Reg b, Reg c) { return a * b + c; }
// x * 2^n, where `shifted` is 1.5 * 2^23 + n.
inline Reg scale_by_power(Reg x, Reg shifted) {
  const Words exponent = reinterpret_cast<Words>(shifted) << 23;
  return reinterpret_cast<Reg>(reinterpret_cast<Words>(x) + exponent);
}
// x with the other sign where n of `shifted` is odd.
inline Reg negate_if_odd(Reg x, Reg shifted) {
  const Words sign = reinterpret_cast<Words>(shifted) << 31;
  return reinterpret_cast<Reg>(reinterpret_cast<Words>(x) ^ sign);
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
#include "kernels/cpu/table_inl.h"

}  // namespace

const Kernels& portable_kernels() { return kKernels; }

}  // namespace runnel::cpu
