// The whole model in plain fp64, one value at a time, as the paper defines it (Katharopoulos et
// al., "Transformers are RNNs", ICML 2020). Every test compares with it, so it is simple, not fast.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/spec.h"

namespace runnel::reference {

using Vector = std::vector<double>;
using Tensors = std::map<std::string, std::vector<float>, std::less<>>;

// ---- pieces -------------------------------------------------------------------------------------

// elu(x) + 1, max(x, 0), or x if the features are already computed.
double phi(FeatureMap map, double x);

// The features of a query or key of one head (kernels/feature_map.h). `omega` [dk, projections] is
// row-major; `sigma` [dk] may be null.
Vector random_features(const RandomFeatures& map, Vector x, const float* omega, const float* sigma);

// W x + b; `weight` [out, in] row-major, `bias` [out] or empty.
Vector linear(const Vector& x, const std::vector<float>& weight, const std::vector<float>& bias);

// (x - mean) / sqrt(variance + eps) * scale + shift.
Vector layer_norm(const Vector& x, const std::vector<float>& scale, const std::vector<float>& shift,
                  double eps);

// max(x, 0), or x (1 + erf(x / sqrt 2)) / 2.
double activate(Activation activation, double x);

// One head's state.
struct HeadState {
  Vector s;  // [features, dv]
  Vector z;  // [features]
};

// Equations 18-20: S += phi(k) v^T, z += phi(k); returns phi(q)^T S / (phi(q)^T z + eps). q and k
// are features. With a gate g in (0, 1), S = g S + (1 - g) phi(k) v^T and likewise z.
Vector attention_step(const Vector& q, const Vector& k, const Vector& v, std::optional<double> gate,
                      double eps, HeadState& state);

// Column c of the sinusoidal encoding of a position.
double sinusoid(int64_t position, int column, int width);

// ---- the network --------------------------------------------------------------------------------

// The past of a sequence.
struct State {
  std::vector<std::vector<HeadState>> layers;  // [layers][heads]
  int64_t position = 0;                        // values consumed
};

class Model {
 public:
  // `tensors` have the names of fast-transformers. Stops the process if one is missing.
  Model(Spec spec, Tensors tensors);

  State fresh() const;

  // Consumes one value and returns the head's outputs for the next value.
  Vector forward(int32_t value, State& state) const;

 private:
  const std::vector<float>& tensor(const std::string& name) const;
  Vector project(const std::string& name, const Vector& x) const;
  Vector norm(const std::string& name, const Vector& x) const;
  Vector embed(int32_t value, int64_t position) const;
  Vector features(const std::string& layer, const Vector& x, int head) const;
  Vector attention(const std::string& layer, const Vector& x, std::vector<HeadState>& heads) const;

  Spec spec_;
  LinearTransformerSpec sizes_;
  Tensors tensors_;
};

// ---- the head -----------------------------------------------------------------------------------

// log softmax.
Vector log_softmax(const Vector& logits);

// log p of each of the 256 values under a discretized mixture of logistics, as training defines it.
Vector mixture_log_probs(const Vector& head, int components);

// log p of every value under either kind of head.
Vector log_probs(const Head& kind, const Vector& head);

// softmax(logits / T) after top_k, top_p and min_p. Each filter sees the result of the one before.
Vector filtered_probabilities(const Vector& logits, const Sampling& sampling);

// The value that two uniform numbers choose.
int32_t sample(const Head& kind, const Vector& head, const Sampling& sampling, double choice,
               double noise);

// The probability of each of the 256 values when sampling a mixture. It differs from the scoring
// form, whose scales are different (see docs/architecture.md). Exact up to rounding.
Vector mixture_sampling_probabilities(const Vector& head, int components, double temperature);

}  // namespace runnel::reference
