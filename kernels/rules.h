// Computes the terms of each rule of the recurrence (Rule, backend.h) for one input:
// - S = diag(w) S + b (a^T S) + k v^T.
//
// The code is a template over a Math. Its Number is a vector register on the CPU and a float on a
// GPU. Numbers have + - * /, and a Math has set(float), multiply_add(a, b, c) = a * b + c, max,
// min, sqrt, if_above(x, y, then, otherwise), exp_nonpositive, sigmoid and softplus.
#pragma once

#include "kernels/backend.h"
#include "kernels/device.h"

namespace runnel {

// Linear attention's gate: sigmoid(gate) and 1 - sigmoid(gate), neither computed by subtraction.
template <typename Math>
struct LinearRule {
  using Number = typename Math::Number;

  Number keep, take;  // S = keep S + take phi(k) v^T

  RUNNEL_DEVICE RUNNEL_INLINE static LinearRule of(Number gate) {
    const Number zero = Math::set(0.0F);
    const Number one = Math::set(1.0F);
    const Number e = Math::exp_nonpositive(Math::if_above(gate, zero, zero - gate, gate));
    const Number more = one / (one + e);
    const Number less = e / (one + e);
    return {Math::if_above(gate, zero, more, less), Math::if_above(gate, zero, less, more)};
  }
};

// RWKV-7, for each channel of a head's keys.
template <typename Math>
struct Rwkv7Rule {
  using Number = typename Math::Number;

  struct Channel {
    Number r, k, decay, rate, k_k, k_a, r_k;
  };

  Number w, k;
  Number a, b;   // before they are multiplied by inverse_length()
  Number bonus;  // its sum over channels is the factor of v

  RUNNEL_DEVICE RUNNEL_INLINE static Rwkv7Rule of(const Channel& at) {
    const Number one = Math::set(1.0F);
    const Number alpha = Math::sigmoid(at.rate);
    const Number kappa = at.k * at.k_k;
    const Number k = at.k * Math::multiply_add(alpha - one, at.k_a, one);
    const Number w =
        Math::exp_nonpositive(Math::set(-0.6065306597126334F) * Math::sigmoid(at.decay));
    return {w, k, Math::set(0.0F) - kappa, alpha * kappa, at.r * (k * at.r_k)};
  }

  // 1 / |kappa|. `square`: the sum of a * a over the head's channels.
  RUNNEL_DEVICE RUNNEL_INLINE static Number inverse_length(Number square, float eps) {
    const Number least = Math::set(eps > 0.0F ? 0.0F : 1e-12F);
    return Math::set(1.0F) / Math::max(Math::sqrt(square + Math::set(eps)), least);
  }

  // v in a layer that mixes it with the first layer's v.
  RUNNEL_DEVICE RUNNEL_INLINE static Number value(Number v, Number first, Number mix) {
    return Math::multiply_add(first - v, Math::sigmoid(mix), v);
  }
};

// Mamba-2, for each head: w and the factor of v.
template <typename Math>
struct Mamba2Rule {
  using Number = typename Math::Number;

  struct Head {
    float rate, bias, least, most;  // Recurrence's dt_...
  };

  Number w, dt;

  RUNNEL_DEVICE RUNNEL_INLINE static Mamba2Rule of(Number decay, const Head& at) {
    const Number raw = Math::softplus(decay + Math::set(at.bias));
    const Number dt = Math::min(Math::max(raw, Math::set(at.least)), Math::set(at.most));
    return {Math::exp_nonpositive(Math::set(-at.rate) * dt), dt};
  }
};

// The gated linear family, for each channel of a head's keys.
template <typename Math>
struct GatedRule {
  using Number = typename Math::Number;

  Number w;
  Number k;  // only with DecayKind::kSigmoid

  // `x` is the input `decay`; `rate` and `bias` are the constants of that kind.
  RUNNEL_DEVICE RUNNEL_INLINE static GatedRule of(DecayKind kind, Number x, Number rate,
                                                  Number bias, float least) {
    const Number zero = Math::set(0.0F);
    const Number one = Math::set(1.0F);
    switch (kind) {
      case DecayKind::kConstant:
        return {rate, zero};
      case DecayKind::kLogSigmoid: {
        const Number log = Math::set(-0.0625F) * Math::softplus(zero - x);
        return {Math::exp_nonpositive(Math::max(Math::set(least), log)), zero};
      }
      case DecayKind::kSigmoid:
        return {Math::multiply_add(one - rate, Math::sigmoid(x), rate),
                (one - rate) * Math::sigmoid(zero - x)};
      case DecayKind::kSoftplus:
        return {Math::exp_nonpositive((zero - rate) * Math::softplus(x + bias)), zero};
      case DecayKind::kExponential:
        return {Math::exp_nonpositive(zero - exponential(x)), zero};
    }
    return {one, zero};
  }

  // e^x, infinite above 87.
  RUNNEL_DEVICE RUNNEL_INLINE static Number exponential(Number x) {
    const Number zero = Math::set(0.0F);
    const Number e = Math::exp_nonpositive(Math::if_above(x, zero, zero - x, x));
    return Math::if_above(x, zero, Math::set(1.0F) / e, e);
  }

  // The factor that normalizes a key, from the sum over its channels: of squares for kL2, of the
  // numbers themselves for kSum.
  RUNNEL_DEVICE RUNNEL_INLINE static Number factor(KeyNorm norm, Number sum) {
    const Number one = Math::set(1.0F);
    return norm == KeyNorm::kL2 ? one / Math::sqrt(sum + Math::set(1e-6F)) : one / sum;
  }
};

}  // namespace runnel
