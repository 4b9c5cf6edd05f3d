// A network of layers on one residual stream: the embedding before the layers, the norm and the
// head after them, and what the layers of several families have in common.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/matrix.h"
#include "models/network.h"
#include "models/weights.h"

namespace runnel {

// The tensors of a norm. An RMSNorm has no shift.
struct NormWeights {
  Matrix scale, shift;
  float eps = 0.0F;
  int groups = 1;
  NormKind kind = NormKind::kLayer;
  Norm norm() const { return {scale.view, shift.view, eps, kind, groups}; }
};

// fp32 [inputs of the largest batch, cols].
Matrix activations(const NetworkParts& parts, int cols);

// exp(log), at most the largest fp32 number: a dt of 0 keeps the state as it is.
float rate_of(float log);

// Each number `times` times, side by side: a number of a head for each of its channels.
std::vector<float> repeated(std::span<const float> numbers, int times);

// All the numbers `times` times: those of a head for each head.
std::vector<float> tiled(std::span<const float> numbers, int times);

// A subclass's constructor reads the layers and then calls read_head().
class LayeredNetwork : public Network {
 public:
  void forward(const Run& run) const final;

 protected:
  // Reads the tensor `table`. The residual stream is `width` columns wide. `positions` columns
  // beside it take what the embedding says of the position.
  LayeredNetwork(const NetworkParts& parts, const std::string& table, int width, int positions = 0);

  // Takes the norm after the layers, and reads the tensor `head`.
  void read_head(const NetworkParts& parts, NormWeights norm, const std::string& head);

  // Takes the residual stream of the run through all layers.
  virtual void pass(const Run& run) const = 0;

  View stream(const Run& run) const { return run.of(x_.view).columns(0, width_); }
  View positions(const Run& run) const {
    return run.of(x_.view).columns(width_, x_.view.cols - width_);
  }

  Embedding embedding_;

 private:
  const int width_;
  Matrix table_;
  Matrix x_;
  NormWeights last_norm_;
  Weight head_;
};

}  // namespace runnel
