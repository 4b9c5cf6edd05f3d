#include "models/mamba1/network.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/layered_network.h"

namespace runnel {
namespace {

struct Layer {
  NormWeights norm;
  Weight in;  // columns x and z
  Matrix taps, conv_bias;
  Convolution convolution;
  Weight to_terms, dt;  // columns dt, B and C; dt
  Matrix dt_rate, dt_bias, skip;
  Recurrence recurrence;
  Weight out;
  int64_t state = 0, conv_inputs = 0;  // bytes from the start of a slot
};

// Reads the layers of a bundle.
class Loader {
 public:
  Loader(const Mamba1Spec& sizes, const NetworkParts& parts)
      : sizes_(sizes), weights_(parts.bundle, parts.backend), parts_(parts) {}

  const WeightReader& weights() const { return weights_; }

  NormWeights norm(const std::string& name) const {
    return {weights_.matrix(name), {}, sizes_.norm_eps, 1, NormKind::kRms};
  }

  Layer layer(int index) const {
    const std::string name = "backbone.layers." + std::to_string(index) + ".";
    const std::string mixer = name + "mixer.";
    Layer layer;
    layer.norm = norm(name + "norm.weight");
    layer.in = linear(mixer + "in_proj", sizes_.bias);
    layer.taps = weights_.taps(mixer + "conv1d.weight");
    if (sizes_.convolution_bias) layer.conv_bias = weights_.matrix(mixer + "conv1d.bias");
    layer.convolution = {layer.taps.view, layer.conv_bias.view};
    layer.to_terms = linear(mixer + "x_proj", false);
    layer.dt = linear(mixer + "dt_proj", false);
    layer.dt_rate = rates(mixer + "A_log");
    layer.dt_bias = weights_.matrix(mixer + "dt_proj.bias");
    layer.skip = weights_.matrix(mixer + "D");
    layer.recurrence = recurrence_of(sizes_);
    layer.recurrence.terms = Mamba1Terms{layer.dt_rate.view, layer.dt_bias.view, layer.skip.view};
    layer.out = linear(mixer + "out_proj", sizes_.bias);
    layer.state = parts_.layout.offsets[index][0];
    layer.conv_inputs = parts_.layout.offsets[index][1];
    return layer;
  }

 private:
  Weight linear(const std::string& name, bool bias) const {
    return weights_.pack({.weight = name + ".weight", .bias = bias ? name + ".bias" : ""},
                         parts_.precision);
  }

  // exp of [channels, states], in the layout of the recurrence's S: [heads][states][columns].
  Matrix rates(const std::string& name) const {
    const std::vector<float> stored = weights_.numbers(name);
    const int size = sizes_.head_size();
    const int states = sizes_.state_size;
    std::vector<float> turned(stored.size());
    for (int channel = 0; channel < sizes_.inner; ++channel) {
      for (int n = 0; n < states; ++n) {
        const int64_t row = int64_t{channel} / size * states + n;
        turned[row * size + channel % size] = rate_of(stored[int64_t{channel} * states + n]);
      }
    }
    return weights_.matrix_of(turned, sizes_.inner / size * states);
  }

  const Mamba1Spec& sizes_;
  const WeightReader weights_;
  const NetworkParts& parts_;
};

class Mamba1 final : public LayeredNetwork {
 public:
  Mamba1(const Mamba1Spec& sizes, const NetworkParts& parts);

 private:
  void pass(const Run& run) const override;
  void norm_terms(const Run& run) const;
  void mix(const Run& run, const Layer& layer) const;

  const Mamba1Spec sizes_;

  std::vector<Layer> layers_;
  Matrix ones_;  // the scale of norms without weights

  // Activations for the largest batch. terms_ holds dt, B and C.
  Matrix u_, projected_, terms_, dt_, y_;
};

Mamba1::Mamba1(const Mamba1Spec& sizes, const NetworkParts& parts)
    : LayeredNetwork(parts, sizes.embedding(), sizes.width), sizes_(sizes) {
  const Loader loader(sizes, parts);
  for (int i = 0; i < sizes.layers; ++i) layers_.push_back(loader.layer(i));
  const std::vector<float> ones(std::max(sizes.rank, sizes.state_size), 1.0F);
  ones_ = loader.weights().matrix_of(ones, 1);
  read_head(parts, loader.norm("backbone.norm_f.weight"),
            sizes.tied ? sizes.embedding() : "lm_head.weight");
  u_ = activations(parts, sizes.width);
  projected_ = activations(parts, 2 * sizes.inner);
  terms_ = activations(parts, sizes.rank + 2 * sizes.state_size);
  dt_ = activations(parts, sizes.inner);
  y_ = activations(parts, sizes.inner);
}

// Falcon-Mamba's norms of dt, B and C.
void Mamba1::norm_terms(const Run& run) const {
  if (sizes_.mixer_eps == 0.0F) return;
  int column = 0;
  for (const int size : {sizes_.rank, sizes_.state_size, sizes_.state_size}) {
    const View part = run.of(terms_.view).columns(column, size);
    run.lane.norm(part, View{}, {ones_.view.columns(0, size), {}, sizes_.mixer_eps, NormKind::kRms},
                  part);
    column += size;
  }
}

void Mamba1::mix(const Run& run, const Layer& layer) const {
  Backend& lane = run.lane;
  const View x = stream(run);
  const View u = run.of(u_.view);
  lane.norm(x, View{}, layer.norm.norm(), u);
  const View projected = run.of(projected_.view);
  lane.matmul(u, layer.in, Activation::kNone, projected);
  const View v = projected.columns(0, sizes_.inner);
  const View z = projected.columns(sizes_.inner, sizes_.inner);
  lane.convolve(run.rows, v, layer.convolution, run.states_at(layer.conv_inputs), v);
  const View terms = run.of(terms_.view);
  lane.matmul(v, layer.to_terms, Activation::kNone, terms);
  norm_terms(run);
  const View dt = run.of(dt_.view);
  lane.matmul(terms.columns(0, sizes_.rank), layer.dt, Activation::kNone, dt);
  const RecurrenceInputs inputs = {
      .q = terms.columns(sizes_.rank + sizes_.state_size, sizes_.state_size),
      .k = terms.columns(sizes_.rank, sizes_.state_size),
      .v = v,
      .gate = z,
      .decay = dt};
  const View y = run.of(y_.view);
  lane.recur(run.rows, run.control, layer.recurrence, inputs, run.states_at(layer.state), y);
  lane.matmul(y, layer.out, {Activation::kNone, {}, x}, x);
}

void Mamba1::pass(const Run& run) const {
  for (const Layer& layer : layers_) mix(run, layer);
}

}  // namespace

std::unique_ptr<Network> make_network(const Mamba1Spec& sizes, const NetworkParts& parts) {
  return std::make_unique<Mamba1>(sizes, parts);
}

}  // namespace runnel
