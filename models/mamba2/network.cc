#include "models/mamba2/network.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/matrix.h"
#include "models/weights.h"

namespace runnel {
namespace {

struct Layer {
  Matrix norm;
  Weight in;  // columns z, x, B, C and dt
  Matrix conv_weight, conv_bias;
  Convolution convolution;
  Matrix dt_rate, dt_bias, skip;
  Recurrence recurrence;
  Matrix gated_norm;
  Weight out;
  int64_t state = 0, conv_inputs = 0;  // of S and the convolution: bytes from the start of a slot
};

// Reads the layers of a bundle.
class Loader {
 public:
  Loader(const Mamba2Spec& sizes, const WeightReader& weights, Precision precision)
      : sizes_(sizes), weights_(weights), precision_(precision) {}

  Layer layer(int index) const {
    const std::string name = "backbone.layers." + std::to_string(index) + ".";
    const std::string mixer = name + "mixer.";
    Layer layer;
    layer.norm = matrix(name + "norm.weight");
    layer.in = linear(mixer + "in_proj");
    layer.conv_weight = weights_.taps(in_file(mixer + "conv1d.weight"));
    if (sizes_.convolution_bias) layer.conv_bias = matrix(mixer + "conv1d.bias");
    layer.convolution = {layer.conv_weight.view, layer.conv_bias.view};
    layer.dt_rate = rate(mixer + "A_log");
    layer.dt_bias = matrix(mixer + "dt_bias");
    layer.skip = matrix(mixer + "D");
    layer.recurrence = recurrence_of(sizes_);
    auto& terms = std::get<Mamba2Terms>(layer.recurrence.terms);
    terms.dt_rate = layer.dt_rate.view;
    terms.dt_bias = layer.dt_bias.view;
    terms.skip = layer.skip.view;
    layer.gated_norm = matrix(mixer + "norm.weight");
    layer.out = linear(mixer + "out_proj");
    return layer;
  }

 private:
  std::string in_file(const std::string& name) const { return name_in_file(sizes_.names, name); }
  // A tensor as one row.
  Matrix matrix(const std::string& name) const { return weights_.rows({in_file(name)}); }

  Weight linear(const std::string& name) const {
    return weights_.pack(
        {.weight = in_file(name + ".weight"), .bias = sizes_.bias ? in_file(name + ".bias") : ""},
        precision_);
  }

  // exp(A_log), for which a GGUF file has -exp(A_log). Beyond fp32 it is its largest number, so
  // that a dt of 0 keeps the state as it is.
  Matrix rate(const std::string& name) const {
    std::vector<float> numbers = weights_.numbers(in_file(name));
    for (float& x : numbers) {
      x = sizes_.names == Mamba2Names::kGguf
              ? -x
              : static_cast<float>(std::min(std::exp(double{x}), double{FLT_MAX}));
    }
    return weights_.matrix_of(numbers, 1);
  }

  const Mamba2Spec& sizes_;
  const WeightReader& weights_;
  const Precision precision_;
};

class Mamba2 final : public Network {
 public:
  Mamba2(const Mamba2Spec& sizes, const NetworkParts& parts);

  void forward(const Run& run) const override;

 private:
  Norm norm(const Matrix& scale, int groups = 1) const {
    return {scale.view, {}, sizes_.norm_eps, NormKind::kRms, groups};
  }
  void mix(const Run& run, const Layer& layer) const;

  const Mamba2Spec sizes_;

  Matrix table_;
  Embedding embedding_;
  std::vector<Layer> layers_;
  Matrix final_norm_;
  Weight head_;

  // Activations at the largest batch.
  Matrix x_, u_, projected_, y_;
};

Mamba2::Mamba2(const Mamba2Spec& sizes, const NetworkParts& parts) : sizes_(sizes) {
  const WeightReader weights(parts.bundle, parts.backend);
  const Loader loader(sizes, weights, parts.precision);
  const std::string table = name_in_file(sizes.names, "backbone.embeddings.weight");
  table_ = weights.vectors(table, embedding_);
  for (int i = 0; i < sizes.layers; ++i) {
    layers_.push_back(loader.layer(i));
    layers_.back().state = parts.layout.offsets[i][0];
    layers_.back().conv_inputs = parts.layout.offsets[i][1];
  }
  final_norm_ = weights.matrix(name_in_file(sizes.names, "backbone.norm_f.weight"));
  head_ = weights.pack({.weight = sizes.tied ? table : name_in_file(sizes.names, "lm_head.weight"),
                        .rows = parts.bundle.spec.vocabulary},
                       parts.precision);
  const auto device = [&](int cols) {
    return make_matrix(parts.backend, DType::kF32, parts.limits.values, cols, Memory::kDevice);
  };
  x_ = device(sizes.width);
  u_ = device(sizes.width);
  projected_ = device(sizes.projected());
  y_ = device(sizes.inner());
}

void Mamba2::mix(const Run& run, const Layer& layer) const {
  Backend& lane = run.lane;
  const View x = run.of(x_.view);
  const View u = run.of(u_.view);
  lane.norm(x, View{}, norm(layer.norm), u);
  const View projected = run.of(projected_.view);
  lane.matmul(u, layer.in, Activation::kNone, projected);

  const int inner = sizes_.inner();
  const int keys = sizes_.groups * sizes_.state_size;
  const View z = projected.columns(0, inner);
  const View xbc = projected.columns(inner, sizes_.channels());
  lane.convolve(run.rows, xbc, layer.convolution, run.states_at(layer.conv_inputs), xbc);
  const RecurrenceInputs inputs = {.q = xbc.columns(inner + keys, keys),
                                   .k = xbc.columns(inner, keys),
                                   .v = xbc.columns(0, inner),
                                   .decay = projected.columns(inner + xbc.cols, sizes_.heads)};
  const View y = run.of(y_.view);
  lane.recur(run.rows, run.control, layer.recurrence, inputs, run.states_at(layer.state), y);
  lane.gated_norm(y, norm(layer.gated_norm, sizes_.groups),
                  {.by = z, .before = !sizes_.norm_before_gate}, y);
  lane.matmul(y, layer.out, {Activation::kNone, {}, x}, x);
}

// One step over a run of rows: the paper's network, and the head where somebody looks at it.
void Mamba2::forward(const Run& run) const {
  const View x = run.of(x_.view);
  run.lane.embed(run.rows, run.values, run.control, embedding_, x);
  for (const Layer& layer : layers_) mix(run, layer);
  if (run.read == 0) return;
  const View read = x.top(run.read);
  run.lane.norm(read, View{}, norm(final_norm_), read);
  run.lane.matmul(read, head_, Activation::kNone, run.head);
}

}  // namespace

std::unique_ptr<Network> make_network(const Mamba2Spec& sizes, const NetworkParts& parts) {
  return std::make_unique<Mamba2>(sizes, parts);
}

}  // namespace runnel
