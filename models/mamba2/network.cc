#include "models/mamba2/network.h"

#include <string>
#include <utility>
#include <vector>

#include "models/layered_network.h"

namespace runnel {
namespace {

constexpr const char* kTable = "backbone.embeddings.weight";

struct Layer {
  NormWeights norm;
  Weight in;  // columns z, x, B, C and dt
  Matrix conv_weight, conv_bias;
  Convolution convolution;
  Matrix dt_rate, dt_bias, skip;
  Recurrence recurrence;
  NormWeights gated_norm;
  Weight out;
  int64_t state = 0, conv_inputs = 0;  // of S and the convolution: bytes from the start of a slot
};

// Reads the layers of a bundle.
class Loader {
 public:
  Loader(const Mamba2Spec& sizes, const WeightReader& weights, Precision precision)
      : sizes_(sizes), weights_(weights), precision_(precision) {}

  NormWeights norm(const std::string& name, int groups = 1) const {
    return {matrix(name), {}, sizes_.norm_eps, groups, NormKind::kRms};
  }

  Layer layer(int index) const {
    const std::string name = "backbone.layers." + std::to_string(index) + ".";
    const std::string mixer = name + "mixer.";
    Layer layer;
    layer.norm = norm(name + "norm.weight");
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
    layer.gated_norm = norm(mixer + "norm.weight", sizes_.groups);
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

  // exp(A_log). A GGUF file stores -exp(A_log) instead.
  Matrix rate(const std::string& name) const {
    std::vector<float> numbers = weights_.numbers(in_file(name));
    for (float& x : numbers) x = sizes_.names == Mamba2Names::kGguf ? -x : rate_of(x);
    return weights_.matrix_of(numbers, 1);
  }

  const Mamba2Spec& sizes_;
  const WeightReader& weights_;
  const Precision precision_;
};

class Mamba2 final : public LayeredNetwork {
 public:
  Mamba2(const Mamba2Spec& sizes, const NetworkParts& parts);

 private:
  void pass(const Run& run) const override;
  void mix(const Run& run, const Layer& layer) const;

  const Mamba2Spec sizes_;

  std::vector<Layer> layers_;

  // Activations for the largest batch.
  Matrix u_, projected_, y_;
};

Mamba2::Mamba2(const Mamba2Spec& sizes, const NetworkParts& parts)
    : LayeredNetwork(parts, name_in_file(sizes.names, kTable), sizes.width), sizes_(sizes) {
  const WeightReader weights(parts.bundle, parts.backend);
  const Loader loader(sizes, weights, parts.precision);
  for (int i = 0; i < sizes.layers; ++i) {
    layers_.push_back(loader.layer(i));
    layers_.back().state = parts.layout.offsets[i][0];
    layers_.back().conv_inputs = parts.layout.offsets[i][1];
  }
  read_head(parts, loader.norm("backbone.norm_f.weight"),
            name_in_file(sizes.names, sizes.tied ? kTable : "lm_head.weight"));
  u_ = activations(parts, sizes.width);
  projected_ = activations(parts, sizes.projected());
  y_ = activations(parts, sizes.inner());
}

void Mamba2::mix(const Run& run, const Layer& layer) const {
  Backend& lane = run.lane;
  const View x = stream(run);
  const View u = run.of(u_.view);
  lane.norm(x, View{}, layer.norm.norm(), u);
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
  lane.gated_norm(y, layer.gated_norm.norm(), {.by = z, .before = !sizes_.norm_before_gate}, y);
  lane.matmul(y, layer.out, {Activation::kNone, {}, x}, x);
}

void Mamba2::pass(const Run& run) const {
  for (const Layer& layer : layers_) mix(run, layer);
}

}  // namespace

std::unique_ptr<Network> make_network(const Mamba2Spec& sizes, const NetworkParts& parts) {
  return std::make_unique<Mamba2>(sizes, parts);
}

}  // namespace runnel
