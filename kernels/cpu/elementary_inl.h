// Elementary functions of a vector register. Included inside an anonymous namespace by each
// isa_*.cc, after the definitions that kernels_inl.h lists. No include guard and no includes: see
// isa.h.

// exp(min(x, most)) within 1 ulp (in portable code 1.25), and 0 for x < -87. `most` is at most 88.
// Cody-Waite: x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor polynomial of degree 7, whose
// remainder is 5e-9.
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

// An elementwise feature map.
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

// Sine and cosine of x, within 2e-7. x is first clamped to [-8192, 8192]. x = n pi + r with |r| <=
// pi / 2. pi is in three parts, and n times each of the first two is exact. Then come the Taylor
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

// 1 / (1 + e^-x), within 2e-7.
inline Reg sigmoid(Reg x) {
  const Reg zero = set1(0.0F);
  const Reg one = set1(1.0F);
  const Reg e = exp_nonpositive(sub(zero, max(x, sub(zero, x))));
  return div(if_above(x, zero, one, e), add(one, e));
}

// Within 2e-7.
inline Reg tanh(Reg x) {
  const Reg zero = set1(0.0F);
  const Reg size = max(x, sub(zero, x));
  const Reg e = exp_nonpositive(mul(set1(-2.0F), size));
  const Reg y = div(sub(set1(1.0F), e), add(set1(1.0F), e));
  return if_above(x, zero, y, sub(zero, y));
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), with an error of at most 2e-7 times the larger of the
// result and 1. With e = e^-|x| and f = e / (2 + e) <= 1/3, log(1 + e) = 2 (f + f^3/3 + f^5/5 +
// ...), whose remainder is below 1e-8.
inline Reg softplus(Reg x) {
  const Reg zero = set1(0.0F);
  const Reg e = exp_nonpositive(sub(zero, max(x, sub(zero, x))));
  const Reg f = div(e, add(set1(2.0F), e));
  const Reg square = mul(f, f);
  Reg sum = set1(1.0F / 15.0F);
  for (int n = 13; n >= 1; n -= 2) {
    sum = multiply_add(sum, square, set1(1.0F / static_cast<float>(n)));
  }
  return add(max(zero, x), mul(add(f, f), sum));
}

inline Reg activate(Activation activation, Reg x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return max(set1(0.0F), x);
    case Activation::kGelu:
      return gelu(x);
    case Activation::kSquaredRelu: {
      const Reg y = max(set1(0.0F), x);
      return mul(y, y);
    }
    case Activation::kTanh:
      return tanh(x);
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kSilu:
      return mul(x, sigmoid(x));
    case Activation::kElu:
      return phi<FeatureMap::kElu>(x);
  }
  return x;
}

// The sum of the lanes, always added in the same order, that of a binary tree.
inline float sum_lanes(Reg x) {
  float lane[kLanes];
  store(lane, x);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

// Calls f(i, n) for each run of n elements that begins at i. The runs cover [0, count): whole
// vectors, then the rest.
template <typename F>
inline void each_vector(int count, const F& f) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, kLanes);
  if (i < count) f(i, count - i);
}
inline Reg load_up_to(const float* p, int n) { return n < kLanes ? load_n(p, n) : load(p); }
inline Reg first_up_to(Reg x, int n) { return n < kLanes ? first(x, n) : x; }
inline void store_up_to(float* p, Reg x, int n) { n < kLanes ? store_n(p, x, n) : store(p, x); }

// The number of a register that has the same number in all lanes.
inline float number_of(Reg x) {
  float lane[kLanes];
  store(lane, x);
  return lane[0];
}

// The Math of rules.h for vector registers.
struct VectorMath {
  using Number = Reg;
  static Reg set(float x) { return set1(x); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return cpu::multiply_add(a, b, c); }
  static Reg max(Reg a, Reg b) { return cpu::max(a, b); }
  static Reg min(Reg a, Reg b) { return cpu::min(a, b); }
  static Reg sqrt(Reg x) { return cpu::sqrt(x); }
  static Reg if_above(Reg x, Reg y, Reg then, Reg otherwise) {
    return cpu::if_above(x, y, then, otherwise);
  }
  static Reg exp_nonpositive(Reg x) { return cpu::exp_nonpositive(x); }
  static Reg sigmoid(Reg x) { return cpu::sigmoid(x); }
  static Reg softplus(Reg x) { return cpu::softplus(x); }
};

inline const float* row_of(const Matrix& matrix, int64_t row) {
  return matrix.data + row * matrix.stride;
}
