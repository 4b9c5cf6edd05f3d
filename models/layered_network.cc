#include "models/layered_network.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>

namespace runnel {

Matrix activations(const NetworkParts& parts, int cols) {
  return make_matrix(parts.backend, DType::kF32, parts.limits.values, cols, Memory::kDevice);
}

float rate_of(float log) {
  return static_cast<float>(std::min(std::exp(double{log}), double{FLT_MAX}));
}

std::vector<float> repeated(std::span<const float> numbers, int times) {
  std::vector<float> all;
  for (const float x : numbers) all.insert(all.end(), times, x);
  return all;
}

std::vector<float> tiled(std::span<const float> numbers, int times) {
  std::vector<float> all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}

LayeredNetwork::LayeredNetwork(const NetworkParts& parts, const std::string& table, int width,
                               int positions)
    : width_(width) {
  table_ = WeightReader(parts.bundle, parts.backend).vectors(table, embedding_);
  x_ = activations(parts, width + positions);
}

void LayeredNetwork::read_head(const NetworkParts& parts, NormWeights norm,
                               const std::string& head) {
  last_norm_ = std::move(norm);
  head_ = WeightReader(parts.bundle, parts.backend)
              .pack({.weight = head, .rows = parts.bundle.spec.vocabulary}, parts.precision);
}

// Runs one step over a run of rows. The head runs only for rows whose output is read.
void LayeredNetwork::forward(const Run& run) const {
  run.lane.embed(run.rows, run.values, run.control, embedding_, run.of(x_.view));
  pass(run);
  if (run.read == 0) return;
  const View read = stream(run).top(run.read);
  run.lane.norm(read, View{}, last_norm_.norm(), read);
  run.lane.matmul(read, head_, Activation::kNone, run.head);
}

}  // namespace runnel
