// Our own elementary functions in double, so that the bits of sampled values and of scores do not
// depend on the installed C library. They are within 4 ulp, and finite for every finite argument.
// Plain constexpr code: the same on the host and on a device.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace runnel {
namespace scalar_math {

// ln 2 in two parts; the first has 21 trailing zero bits, so that small integers times it are
// exact.
inline constexpr double kLn2High = 0x1.62e42feep-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// log((1 + f) / (1 - f)) = 2 (f + f^3/3 + f^5/5 + ...) for |f| <= 0.172: the remainder is below
// 1e-18.
RUNNEL_DEVICE constexpr double log_ratio(double f) {
  const double square = f * f;
  double sum = 0.0;
  for (int n = 23; n >= 3; n -= 2) sum = (sum + 1.0 / n) * square;
  return 2.0 * f + 2.0 * f * sum;
}

}  // namespace scalar_math

// e^x; 0 below -708, e^709 above 709.
RUNNEL_DEVICE constexpr double exp_of(double x) {
  if (!(x >= -708.0)) return 0.0;
  if (x > 709.0) x = 709.0;
  // 1/0! .. 1/13!: for |r| <= ln 2 / 2 the remainder of the series is 5e-18.
  constexpr double kInverseFactorial[] = {1.0,
                                          1.0,
                                          1.0 / 2,
                                          1.0 / 6,
                                          1.0 / 24,
                                          1.0 / 120,
                                          1.0 / 720,
                                          1.0 / 5040,
                                          1.0 / 40320,
                                          1.0 / 362880,
                                          1.0 / 3628800,
                                          1.0 / 39916800,
                                          1.0 / 479001600,
                                          1.0 / 6227020800};
  constexpr double kShift = 0x1.8p52;
  const double shifted = x * 0x1.71547652b82fep+0 + kShift;
  const double n = shifted - kShift;
  const double r = (x - n * scalar_math::kLn2High) - n * scalar_math::kLn2Low;
  double p = kInverseFactorial[13];
  for (int i = 12; i >= 0; --i) p = p * r + kInverseFactorial[i];
  const uint64_t exponent = bit_cast<uint64_t>(shifted) << 52;
  return bit_cast<double>(bit_cast<uint64_t>(p) + exponent);
}

// Natural logarithm of a normal x > 0.
RUNNEL_DEVICE constexpr double log_of(double x) {
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  const uint64_t bits = bit_cast<uint64_t>(x);
  const uint64_t shifted = bits - bit_cast<uint64_t>(0x1.6a09e667f3bcdp-1);
  const int64_t e = static_cast<int64_t>(shifted) >> 52;
  const double m = bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  const double exponent = static_cast<double>(e);
  return exponent * scalar_math::kLn2High +
         (scalar_math::log_ratio((m - 1.0) / (m + 1.0)) + exponent * scalar_math::kLn2Low);
}

// log(1 + x) for x in [0, 1].
RUNNEL_DEVICE constexpr double log1p_of(double x) {
  if (x > 0.4) return log_of(1.0 + x);
  return scalar_math::log_ratio(x / (2.0 + x));
}

// log(1 + e^x), without overflow.
RUNNEL_DEVICE constexpr double softplus(double x) {
  return x > 0.0 ? x + log1p_of(exp_of(-x)) : log1p_of(exp_of(x));
}

// 1 / (1 + e^-x).
RUNNEL_DEVICE constexpr double sigmoid(double x) {
  if (x >= 0.0) return 1.0 / (1.0 + exp_of(-x));
  const double e = exp_of(x);
  return e / (1.0 + e);
}

}  // namespace runnel
