// A network of layers on one residual stream: the embedding before the layers, the norm and the
// head after them, and code that the layers of several families share.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
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

// exp(log), limited to the largest finite fp32 number. So a dt of 0 leaves the state unchanged,
// because 0 times the rate is never NaN.
float rate_of(float log);

// Repeats each number `times` times in a row: the number of a head, for each of the head's
// channels.
std::vector<float> repeated(std::span<const float> numbers, int times);

// Repeats the whole list `times` times: the numbers of one head, for each head.
std::vector<float> tiled(std::span<const float> numbers, int times);

// A list of up to eight products with the same number of rows, which are computed at once.
class Products {
 public:
  void add(const Product& product) {
    check(count_ < products_.size(), "products: at most eight at once");
    products_[count_++] = product;
  }
  void compute(Backend& lane) const {
    if (count_ > 0) lane.matmuls(std::span(products_).first(count_));
  }

 private:
  std::array<Product, 8> products_;
  size_t count_ = 0;
};

// The constructor of a subclass reads its layers, and then calls read_head().
class LayeredNetwork : public Network {
 public:
  void forward(const Run& run) const final;

 protected:
  // Reads the tensor `table`. The residual stream has `width` columns. `positions` more columns
  // hold the embedding's vector of the position.
  LayeredNetwork(const NetworkParts& parts, const std::string& table, int width, int positions = 0);

  // Sets the norm after the layers, and reads the tensor `head`.
  void read_head(const NetworkParts& parts, NormWeights norm, const std::string& head);

  // Runs all layers on the residual stream of the run.
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
