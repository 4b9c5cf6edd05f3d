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
    layer.norm = weights_.matrix(name + "norm.weight");
    layer.in = linear(mixer + "in_proj");
    layer.conv_weight = taps(mixer + "conv1d.weight");
    if (sizes_.convolution_bias) layer.conv_bias = weights_.matrix(mixer + "conv1d.bias");
    layer.convolution = {layer.conv_weight.view, layer.conv_bias.view};
    layer.dt_rate = exponential(mixer + "A_log");
    layer.dt_bias = weights_.matrix(mixer + "dt_bias");
    layer.skip = weights_.matrix(mixer + "D");
    layer.recurrence = recurrence_of(sizes_);
    layer.recurrence.dt_rate = layer.dt_rate.view;
    layer.recurrence.dt_bias = layer.dt_bias.view;
    layer.recurrence.skip = layer.skip.view;
    layer.gated_norm = weights_.matrix(mixer + "norm.weight");
    layer.out = linear(mixer + "out_proj");
    return layer;
  }

 private:
  Weight linear(const std::string& name) const {
    return weights_.pack({.weight = name + ".weight", .bias = sizes_.bias ? name + ".bias" : ""},
                         precision_);
  }

  // [channels, 1, taps] as [taps, channels].
  Matrix taps(const std::string& name) const {
    const std::vector<float> stored = weights_.numbers(name);
    std::vector<float> turned(stored.size());
    const int channels = sizes_.channels();
    for (int channel = 0; channel < channels; ++channel) {
      for (int tap = 0; tap < sizes_.taps; ++tap) {
        turned[tap * channels + channel] = stored[channel * sizes_.taps + tap];
      }
    }
    return weights_.matrix_of(turned, sizes_.taps);
  }

  // What is beyond fp32 is its largest number, so that a dt of 0 keeps the state as it is.
  Matrix exponential(const std::string& name) const {
    std::vector<float> numbers = weights_.numbers(name);
    for (float& x : numbers) {
      x = static_cast<float>(std::min(std::exp(double{x}), double{FLT_MAX}));
    }
    return weights_.matrix_of(numbers, 1);
  }

  const Mamba2Spec& sizes_;
  const WeightReader& weights_;
  const Precision precision_;
};

class Mamba2 final : public Network {
 public:
  Mamba2(const Mamba2Spec& sizes, const Bundle& bundle, Backend& backend, const ModelLimits& limits,
         Precision precision);

  int64_t state_bytes() const override { return layer_bytes_ * sizes_.layers; }
  std::vector<StatePart> state_parts() const override {
    return parts_of_layers(layer_parts_, sizes_.layers, layer_bytes_);
  }
  void forward(const Run& run) const override;

 private:
  void lay_out_state(const Backend& backend);
  Norm norm(const Matrix& scale, int groups = 1) const {
    return {scale.view, {}, sizes_.norm_eps, NormKind::kRms, groups};
  }
  void mix(const Run& run, const Layer& layer, int64_t state) const;

  const Mamba2Spec sizes_;

  // The state of a layer: S, then the convolution's latest inputs.
  int64_t conv_inputs_ = 0, layer_bytes_ = 0;
  std::vector<StatePart> layer_parts_;

  Matrix table_;
  Embedding embedding_;
  std::vector<Layer> layers_;
  Matrix final_norm_;
  Weight head_;

  // Activations at the largest batch.
  Matrix x_, u_, projected_, y_;
};

Mamba2::Mamba2(const Mamba2Spec& sizes, const Bundle& bundle, Backend& backend,
               const ModelLimits& limits, Precision precision)
    : sizes_(sizes) {
  const WeightReader weights(bundle, backend);
  const Loader loader(sizes, weights, precision);
  const std::string table = embedding_name(sizes.names);
  table_ = weights.table(table);
  embedding_.values = table_.view;
  for (int i = 0; i < sizes.layers; ++i) layers_.push_back(loader.layer(i));
  final_norm_ = weights.matrix("backbone.norm_f.weight");
  head_ = weights.pack(
      {.weight = sizes.tied ? table : "lm_head.weight", .rows = bundle.spec.vocabulary}, precision);
  lay_out_state(backend);
  const auto device = [&](int cols) {
    return make_matrix(backend, DType::kF32, limits.values, cols, Memory::kDevice);
  };
  x_ = device(sizes.width);
  u_ = device(sizes.width);
  projected_ = device(sizes.projected());
  y_ = device(sizes.inner());
}

void Mamba2::lay_out_state(const Backend& backend) {
  const Recurrence recurrence = recurrence_of(sizes_);
  const int64_t input_bytes = int64_t{sizes_.channels()} * 4;
  conv_inputs_ = backend.state_bytes(recurrence);
  layer_bytes_ = conv_inputs_ + layers_[0].convolution.state_bytes();
  layer_parts_ = backend.state_parts(recurrence);
  layer_parts_.push_back({"conv_inputs",
                          DType::kF32,
                          {sizes_.taps - 1, sizes_.channels()},
                          conv_inputs_,
                          input_bytes});
}

void Mamba2::mix(const Run& run, const Layer& layer, int64_t state) const {
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
  lane.convolve(run.rows, xbc, layer.convolution, run.states_at(state + conv_inputs_), xbc);
  const RecurrenceInputs inputs = {.q = xbc.columns(inner + keys, keys),
                                   .k = xbc.columns(inner, keys),
                                   .v = xbc.columns(0, inner),
                                   .decay = projected.columns(inner + xbc.cols, sizes_.heads)};
  const View y = run.of(y_.view);
  lane.recur(run.rows, run.control, layer.recurrence, inputs, run.states_at(state), y);
  lane.gated_norm(y, norm(layer.gated_norm, sizes_.groups),
                  {.by = z, .before = !sizes_.norm_before_gate}, y);
  lane.matmul(y, layer.out, {Activation::kNone, {}, x}, x);
}

// One step over a run of rows: the paper's network, and the head where somebody looks at it.
void Mamba2::forward(const Run& run) const {
  const View x = run.of(x_.view);
  run.lane.embed(run.rows, run.values, run.control, embedding_, x);
  for (int i = 0; i < sizes_.layers; ++i) mix(run, layers_[i], i * layer_bytes_);
  if (run.read == 0) return;
  const View read = x.top(run.read);
  run.lane.norm(read, View{}, norm(final_norm_), read);
  run.lane.matmul(read, head_, Activation::kNone, run.head);
}

}  // namespace

std::unique_ptr<Network> make_network(const Mamba2Spec& sizes, const Bundle& bundle,
                                      Backend& backend, const ModelLimits& limits,
                                      Precision precision) {
  return std::make_unique<Mamba2>(sizes, bundle, backend, limits, precision);
}

}  // namespace runnel
