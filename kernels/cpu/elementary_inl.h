// Elementary functions of a vector register. Included inside an anonymous namespace by each
// isa_*.cc, which defines before it what kernels_inl.h names. No include guard and no includes: see
// isa.h.

// exp(x) for x <= most <= 88 (larger x counts as `most`), 0 below -87. Within 1 ulp. Cody-Waite: x
// = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor polynomial of degree 7, whose remainder is
// 5e-9.
inline Reg exp_up_to(Reg most, Reg x) {
  const Reg shift = set1(0x1.8p23F);
  const Reg clamped = max(set1(-87.0F), min(most, x));
  const Reg shifted = add(mul(clamped, set1(0x1.715476p+0F)), shift);
  const Reg n = sub(shifted, shift);
  // ln 2 in two parts; n times the first is exact.
  Reg r = sub(clamped, mul(n, set1(0x1.62e4p-1F)));
  r = sub(r, mul(n, set1(0x1.7f7d1cp-20F)));
  Reg p = set1(1.0F / 5040.0F);
  p = multiply_add(p, r, set1(1.0F / 720.0F));
  p = multiply_add(p, r, set1(1.0F / 120.0F));
  p = multiply_add(p, r, set1(1.0F / 24.0F));
  p = multiply_add(p, r, set1(1.0F / 6.0F));
  p = multiply_add(p, r, set1(0.5F));
  p = multiply_add(p, r, set1(1.0F));
  p = multiply_add(p, r, set1(1.0F));
  return if_above(set1(-87.0F), x, set1(0.0F), scale_by_power(p, shifted));
}

inline Reg exp_nonpositive(Reg x) { return exp_up_to(set1(0.0F), x); }

// Of a feature map that takes each number by itself.
template <FeatureMap kMap>
inline Reg phi(Reg x) {
  if constexpr (kMap == FeatureMap::kElu) {
    return if_above(x, set1(0.0F), add(x, set1(1.0F)), exp_nonpositive(x));
  } else if constexpr (kMap == FeatureMap::kRelu) {
    return max(set1(0.0F), x);
  } else {
    return x;
  }
}

// Sine and cosine of x within [-8192, 8192] (what is beyond counts as the end), to 2e-7: x = n pi +
// r with |r| <= pi / 2, in three parts of which n times the first two are exact; then the Taylor
// polynomials, whose remainders are below 1e-9.
struct Angle {
  Reg cosine, sine;
};
inline Angle angle_of(Reg x) {
  const Reg shift = set1(0x1.8p23F);
  const Reg clamped = max(set1(-8192.0F), min(set1(8192.0F), x));
  const Reg shifted = add(mul(clamped, set1(0x1.45f306p-2F)), shift);
  const Reg n = sub(shifted, shift);
  Reg r = sub(clamped, mul(n, set1(0x1.92p+1F)));
  r = sub(r, mul(n, set1(0x1.fb4p-11F)));
  r = sub(r, mul(n, set1(0x1.4442d2p-23F)));
  const Reg square = mul(r, r);
  Reg sine = set1(1.0F / 6227020800.0F);
  sine = multiply_add(sine, square, set1(-1.0F / 39916800.0F));
  sine = multiply_add(sine, square, set1(1.0F / 362880.0F));
  sine = multiply_add(sine, square, set1(-1.0F / 5040.0F));
  sine = multiply_add(sine, square, set1(1.0F / 120.0F));
  sine = multiply_add(sine, square, set1(-1.0F / 6.0F));
  sine = multiply_add(mul(sine, square), r, r);
  Reg cosine = set1(-1.0F / 87178291200.0F);
  cosine = multiply_add(cosine, square, set1(1.0F / 479001600.0F));
  cosine = multiply_add(cosine, square, set1(-1.0F / 3628800.0F));
  cosine = multiply_add(cosine, square, set1(1.0F / 40320.0F));
  cosine = multiply_add(cosine, square, set1(-1.0F / 720.0F));
  cosine = multiply_add(cosine, square, set1(1.0F / 24.0F));
  cosine = multiply_add(cosine, square, set1(-0.5F));
  cosine = multiply_add(cosine, square, set1(1.0F));
  return {negate_if_odd(cosine, shifted), negate_if_odd(sine, shifted)};
}

// x * (1 + erf(x / sqrt 2)) / 2, within 2.5e-7. erfc(a) = t P(t) exp(-a^2) with t = 1 / (1 + a /
// 2); P is fitted to a relative error of 4e-8 on [0, 10].
inline Reg gelu(Reg x) {
  const Reg zero = set1(0.0F);
  const Reg half = mul(set1(0.5F), x);
  const Reg a = mul(max(x, sub(zero, x)), set1(0x1.6a09e6p-1F));
  const Reg t = div(set1(1.0F), multiply_add(set1(0.5F), a, set1(1.0F)));
  Reg p = set1(-0.05906921625137329F);
  p = multiply_add(p, t, set1(0.2845761775970459F));
  p = multiply_add(p, t, set1(-0.48720231652259827F));
  p = multiply_add(p, t, set1(0.27806979417800903F));
  p = multiply_add(p, t, set1(-0.02662738598883152F));
  p = multiply_add(p, t, set1(0.2026875615119934F));
  p = multiply_add(p, t, set1(0.24310359358787537F));
  p = multiply_add(p, t, set1(0.2823753356933594F));
  p = multiply_add(p, t, set1(0.28208640217781067F));
  const Reg erfc = mul(mul(p, t), exp_nonpositive(sub(zero, mul(a, a))));
  const Reg tail = mul(half, erfc);
  return if_above(x, zero, sub(x, tail), tail);
}

// The sum of the lanes, always as the same tree.
inline float sum_lanes(Reg x) {
  float lane[kLanes];
  store(lane, x);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}
