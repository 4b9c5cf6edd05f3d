// The feature maps of linear attention, which transform queries and keys before the recurrence.
// They come from fast-transformers (feature_maps/) and random feature attention (Peng et al. 2021).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/device.h"
#include "kernels/scalar_math.h"
#include "kernels/view.h"

namespace runnel {

enum class Activation : uint8_t {
  kNone,
  kRelu,
  kGelu,  // the exact form, with erf
  kSquaredRelu,
  kTanh,
  kSigmoid,
  kSilu,  // x sigmoid(x)
  kElu,   // elu(x) + 1; only in GatedTerms::map
};

enum class FeatureMap : uint8_t {
  kNone,  // x: the inputs are already mapped
  kElu,   // elu(x) + 1
  kRelu,  // max(x, 0)
  // Maps by random projections, see RandomFeatures.
  kFavor,
  kFourier,
  kSmoothedFourier,
  kGeneralized
};

RUNNEL_DEVICE constexpr bool is_random(FeatureMap map) { return map >= FeatureMap::kFavor; }

// A map by random projections. x [dk] is one head's query or key, and u = x' omega:
//   x'                sqrt(temperature) x; with sigma: sqrt(temperature) sigma x / max(|x|, 1e-12)
//   kFavor            exp(u - c), exp(-u - c); c = (|x'|^2 + ln(count)) / 2
//   kFourier          a cos(u), a sin(u); a = sqrt(2 / count)
//   kSmoothedFourier  the same with count - 1, and then `smoothing`
//   kGeneralized      kernel(u)
// Arguments of exp are clamped to at most 88, and angles to [-8192, 8192].
struct RandomFeatures {
  FeatureMap map = FeatureMap::kFavor;
  // The number of features requested in fast-transformers; size() is the actual number.
  int count = 0;
  float temperature = 1.0F;
  float smoothing = 1.0F;
  Activation kernel = Activation::kRelu;
  View omega;  // fp32 [dk, projections()]
  View sigma;  // fp32 [heads, dk], data null: none

  // The pairs of cosines and sines. If their requested number is odd, the last feature is left out,
  // but counts in the scale.
  RUNNEL_DEVICE constexpr int pairs() const {
    return (map == FeatureMap::kSmoothedFourier ? count - 1 : count) / 2;
  }
  RUNNEL_DEVICE constexpr int projections() const {
    return map == FeatureMap::kGeneralized ? count : pairs();
  }
  // The number of features of one head.
  RUNNEL_DEVICE constexpr int size() const {
    if (map == FeatureMap::kGeneralized) return count;
    return 2 * pairs() + (map == FeatureMap::kSmoothedFourier ? 1 : 0);
  }

  // sqrt(temperature).
  float scale() const { return std::sqrt(temperature); }
  // ln(count) / 2 for kFavor, sqrt(2 / count) for kFourier, sqrt(2 / (count - 1)) for
  // kSmoothedFourier.
  float constant() const {
    if (map == FeatureMap::kFavor) return static_cast<float>(log_of(count) / 2);
    return static_cast<float>(
        std::sqrt(2.0 / (map == FeatureMap::kSmoothedFourier ? count - 1 : count)));
  }
};

}  // namespace runnel
