// Elementary functions in fp32, for one number at a time, with the same formulas as the CPU's
// vectors. The code is plain constexpr code, without contraction except for explicit fma, so the
// results are the same on the host and on a device.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/device.h"
#include "kernels/scalar_math.h"

namespace runnel::cuda {

// exp(x) for x in [-87, 88]. Within 1 ulp. Cody-Waite: x = n ln 2 + r with |r| <= ln 2 / 2, then
// the Taylor polynomial of degree 7, whose remainder is 5e-9.
RUNNEL_DEVICE constexpr float exp_within(float x) {
  constexpr float kShift = 0x1.8p23F;
  const float shifted = x * 0x1.715476p+0F + kShift;
  const float n = shifted - kShift;
  // ln 2 in two parts; n times the first is exact.
  const float r = (x - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  float p = 1.0F / 5040.0F;
  p = std::fma(p, r, 1.0F / 720.0F);
  p = std::fma(p, r, 1.0F / 120.0F);
  p = std::fma(p, r, 1.0F / 24.0F);
  p = std::fma(p, r, 1.0F / 6.0F);
  p = std::fma(p, r, 0.5F);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  const uint32_t exponent = bit_cast<uint32_t>(shifted) << 23;
  return bit_cast<float>(bit_cast<uint32_t>(p) + exponent);
}

// exp(x) for x <= most <= 88 (larger x counts as `most`), 0 below -87.
RUNNEL_DEVICE constexpr float exp_up_to(float most, float x) {
  if (!(x >= -87.0F)) return 0.0F;
  return exp_within(x < most ? x : most);
}

RUNNEL_DEVICE constexpr float exp_nonpositive(float x) { return exp_up_to(0.0F, x); }

// elu(x) + 1. Every thread computes the exponential, so that the threads of a warp do not diverge.
RUNNEL_DEVICE constexpr float phi(float x) {
  const float bounded = x > -87.0F ? x : -87.0F;
  const float below = exp_within(x < 0.0F ? bounded : 0.0F);
  return x > 0.0F ? x + 1.0F : x >= -87.0F ? below : 0.0F;
}

// A feature map that maps each number by itself.
RUNNEL_DEVICE constexpr float phi(FeatureMap map, float x) {
  if (map == FeatureMap::kElu) return phi(x);
  return map == FeatureMap::kRelu && 0.0F > x ? 0.0F : x;
}

// Sine and cosine of x, which is clamped to [-8192, 8192], to within 2e-7. x = n pi + r with |r| <=
// pi / 2. pi is in three parts, and n times each of the first two is exact. Then come the Taylor
// polynomials, whose remainders are below 1e-9.
struct Angle {
  float cosine, sine;
};
RUNNEL_DEVICE constexpr Angle angle_of(float x) {
  constexpr float kShift = 0x1.8p23F;
  const float clamped = x > 8192.0F ? 8192.0F : x < -8192.0F ? -8192.0F : x;
  const float shifted = clamped * 0x1.45f306p-2F + kShift;
  const float n = shifted - kShift;
  const float r = ((clamped - n * 0x1.92p+1F) - n * 0x1.fb4p-11F) - n * 0x1.4442d2p-23F;
  const float square = r * r;
  float sine = 1.0F / 6227020800.0F;
  sine = std::fma(sine, square, -1.0F / 39916800.0F);
  sine = std::fma(sine, square, 1.0F / 362880.0F);
  sine = std::fma(sine, square, -1.0F / 5040.0F);
  sine = std::fma(sine, square, 1.0F / 120.0F);
  sine = std::fma(sine, square, -1.0F / 6.0F);
  sine = std::fma(sine * square, r, r);
  float cosine = -1.0F / 87178291200.0F;
  cosine = std::fma(cosine, square, 1.0F / 479001600.0F);
  cosine = std::fma(cosine, square, -1.0F / 3628800.0F);
  cosine = std::fma(cosine, square, 1.0F / 40320.0F);
  cosine = std::fma(cosine, square, -1.0F / 720.0F);
  cosine = std::fma(cosine, square, 1.0F / 24.0F);
  cosine = std::fma(cosine, square, -0.5F);
  cosine = std::fma(cosine, square, 1.0F);
  const uint32_t sign = bit_cast<uint32_t>(shifted) << 31;
  return {bit_cast<float>(bit_cast<uint32_t>(cosine) ^ sign),
          bit_cast<float>(bit_cast<uint32_t>(sine) ^ sign)};
}

// Column `column` of a position's sinusoids (Embedding): sin, or cos if the column is odd, of
// position * 10000^(-2 floor(column / 2) / width). Before rounding, the error is at most 1e-13,
// plus the effect of 4 ulp of the frequency on the angle. n is the nearest number of quarter turns.
// The rest r is computed with fma and pi / 2 in two parts. Then come the Taylor polynomials.
RUNNEL_DEVICE constexpr float sinusoid(int64_t position, int column, int width) {
  constexpr double kLog10000 = 9.210340371976184;
  constexpr double kShift = 0x1.8p52;
  const double frequency = exp_of(-2.0 * (column / 2) / width * kLog10000);
  const double angle = static_cast<double>(position) * frequency;
  const double shifted = angle * 0x1.45f306dc9c883p-1 + kShift;
  const double n = shifted - kShift;
  const double r = std::fma(-n, 0x1.1a62633145c07p-54, std::fma(-n, 0x1.921fb54442d18p+0, angle));
  const double square = r * r;
  const uint64_t quarter = bit_cast<uint64_t>(shifted) + static_cast<uint64_t>(column % 2);
  const bool odd = quarter % 2 == 0;  // true: the terms of the sine; false: of the cosine
  double terms = 0.0;
  for (int i = 14; i > 0; i -= 2) {
    terms = (1.0 - terms) * square * (odd ? 1.0 / (i * (i + 1)) : 1.0 / (i * (i - 1)));
  }
  const double at = odd ? r - r * terms : 1.0 - terms;
  return static_cast<float>(quarter % 4 < 2 ? at : -at);
}

// x * (1 + erf(x / sqrt 2)) / 2, within 2.5e-7. erfc(a) = t P(t) exp(-a^2) with t = 1 / (1 + a /
// 2); P is fitted to a relative error of 4e-8 on [0, 10].
RUNNEL_DEVICE constexpr float gelu(float x) {
  const float half = 0.5F * x;
  const float a = (x > 0.0F ? x : 0.0F - x) * 0x1.6a09e6p-1F;
  const float t = 1.0F / std::fma(0.5F, a, 1.0F);
  float p = -0.05906921625137329F;
  p = std::fma(p, t, 0.2845761775970459F);
  p = std::fma(p, t, -0.48720231652259827F);
  p = std::fma(p, t, 0.27806979417800903F);
  p = std::fma(p, t, -0.02662738598883152F);
  p = std::fma(p, t, 0.2026875615119934F);
  p = std::fma(p, t, 0.24310359358787537F);
  p = std::fma(p, t, 0.2823753356933594F);
  p = std::fma(p, t, 0.28208640217781067F);
  const float tail = half * (p * t * exp_nonpositive(0.0F - a * a));
  return x > 0.0F ? x - tail : tail;
}

// 1 / (1 + e^-x), within 2e-7.
RUNNEL_DEVICE constexpr float sigmoid(float x) {
  const float e = exp_nonpositive(x > 0.0F ? 0.0F - x : x);
  return (x > 0.0F ? 1.0F : e) / (1.0F + e);
}

// Within 2e-7.
RUNNEL_DEVICE constexpr float tanh(float x) {
  const float e = exp_nonpositive(-2.0F * (x > 0.0F ? x : 0.0F - x));
  const float y = (1.0F - e) / (1.0F + e);
  return x > 0.0F ? y : 0.0F - y;
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), within 2e-7 of the larger of the result and 1. With e
// = e^-|x| and f = e / (2 + e) <= 1/3, log(1 + e) = 2 (f + f^3/3 + f^5/5 + ...), whose remainder is
// below 1e-8.
RUNNEL_DEVICE constexpr float softplus(float x) {
  const float e = exp_nonpositive(x > 0.0F ? 0.0F - x : x);
  const float f = e / (2.0F + e);
  const float square = f * f;
  float sum = 1.0F / 15.0F;
  for (int n = 13; n >= 1; n -= 2) sum = std::fma(sum, square, 1.0F / static_cast<float>(n));
  return (x > 0.0F ? x : 0.0F) + (f + f) * sum;
}

// The activations of linear transformers; x itself for all others. NaN stays NaN.
RUNNEL_DEVICE constexpr float activate_basic(Activation activation, float x) {
  if (activation == Activation::kRelu) return 0.0F > x ? 0.0F : x;
  return activation == Activation::kGelu ? gelu(x) : x;
}

RUNNEL_DEVICE constexpr float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSquaredRelu:
      return 0.0F > x ? 0.0F : x * x;
    case Activation::kTanh:
      return tanh(x);
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kSilu:
      return x * sigmoid(x);
    default:
      return activate_basic(activation, x);
  }
}

// For kernels/rules.h.
struct ScalarMath {
  using Number = float;
  RUNNEL_DEVICE static constexpr float set(float x) { return x; }
  RUNNEL_DEVICE static constexpr float multiply_add(float a, float b, float c) {
    return std::fma(a, b, c);
  }
  RUNNEL_DEVICE static constexpr float max(float a, float b) { return a > b ? a : b; }
  RUNNEL_DEVICE static constexpr float min(float a, float b) { return a < b ? a : b; }
  RUNNEL_DEVICE static float sqrt(float x) { return std::sqrt(x); }
  RUNNEL_DEVICE static constexpr float if_above(float x, float y, float then, float otherwise) {
    return x > y ? then : otherwise;
  }
  RUNNEL_DEVICE static constexpr float exp_nonpositive(float x) { return cuda::exp_nonpositive(x); }
  RUNNEL_DEVICE static constexpr float sigmoid(float x) { return cuda::sigmoid(x); }
  RUNNEL_DEVICE static constexpr float softplus(float x) { return cuda::softplus(x); }
};

// An unsigned number that orders as x does. +0 and -0 have the same number.
RUNNEL_DEVICE constexpr uint32_t order_key(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x + 0.0F);
  return (bits >> 31) != 0 ? ~bits : bits | (1U << 31);
}

// x clamped to [-1e30, 1e30]; a NaN becomes -1e30.
RUNNEL_DEVICE constexpr float finite(float x) {
  if (!(x > -1e30F)) return -1e30F;
  return x < 1e30F ? x : 1e30F;
}

}  // namespace runnel::cuda
