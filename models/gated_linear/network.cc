#include "models/gated_linear/network.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/layered_network.h"

namespace runnel {
namespace {

constexpr const char* kTable = "model.embeddings.weight";
constexpr float kHgrn2NormEps = 1e-5F;  // whatever the file says: its code ignores norm_eps

// A projection, followed by its convolution if it has one.
struct Projection {
  Weight weight;
  Activation activation;  // of the product, or else of the convolution if there is one
  Matrix taps, bias;
  Convolution convolution;
  int64_t inputs = 0;  // of the convolution's state: bytes from the start of a slot
};

struct Layer {
  NormWeights norm, ffn_norm;
  Projection q, k, v;
  Weight decay_in, decay;  // decay_in: the first factor of low rank
  Weight beta;
  Weight gate_in, gate;
  Matrix decay_rate, decay_bias;
  Recurrence recurrence;
  NormWeights output_norm;
  Weight out;
  Weight ffn_gate, ffn_up, ffn_down;
  int64_t state = 0;  // bytes from the start of a slot
};

// RetNet's decay for each head.
std::vector<float> retentions(int heads) {
  std::vector<float> all;
  for (int head = 0; head < heads; ++head) {
    all.push_back(static_cast<float>(1.0 - std::exp2(-5.0 - head)));
  }
  return all;
}

// Each layer's lower bounds: cumulative sums of the softmax over layers, without the first row.
std::vector<std::vector<float>> lower_bounds(const std::vector<float>& stored, int layers) {
  const size_t width = stored.size() / layers;
  std::vector<std::vector<float>> bounds(layers, std::vector<float>(width));
  for (size_t c = 0; c < width; ++c) {
    double most = stored[c];
    for (int l = 0; l < layers; ++l) most = std::max(most, double{stored[l * width + c]});
    double total = 0.0;
    for (int l = 0; l < layers; ++l) total += std::exp(stored[l * width + c] - most);
    double sum = 0.0;
    for (int l = 1; l < layers; ++l) {
      sum += std::exp(stored[l * width + c] - most) / total;
      bounds[l][c] = static_cast<float>(sum);
    }
  }
  return bounds;
}

// Reads the layers of a bundle.
class Loader {
 public:
  Loader(const GatedLinearSpec& sizes, const NetworkParts& parts)
      : sizes_(sizes), weights_(parts.bundle, parts.backend), parts_(parts) {
    if (sizes.mixer == GatedMixer::kHgrn2) {
      bounds_ = lower_bounds(weights_.numbers("model.lower_bounds"), sizes.layers);
    }
  }

  const WeightReader& weights() const { return weights_; }

  NormWeights norm(const std::string& name) const {
    return {weights_.matrix(name), {}, sizes_.norm_eps, 1, NormKind::kRms};
  }

  Layer layer(int index) const {
    const std::string name = "model.layers." + std::to_string(index) + ".";
    Layer layer;
    layer.norm = norm(name + "attn_norm.weight");
    layer.ffn_norm = norm(name + "mlp_norm.weight");
    read_inputs(index, name + "attn.", layer);
    read_recurrence(index, name + "attn.", layer);
    read_output(name + "attn.", layer);
    const int rows = sizes_.ffn;
    const std::string gate = name + "mlp.gate_proj.weight";
    layer.ffn_gate = pack({.weight = gate, .rows = rows});
    layer.ffn_up = sizes_.joined_ffn ? pack({.weight = gate, .first = rows, .rows = rows})
                                     : pack({.weight = name + "mlp.up_proj.weight"});
    layer.ffn_down = pack({.weight = name + "mlp.down_proj.weight"});
    return layer;
  }

 private:
  Weight pack(const LinearTensors& names) const { return weights_.pack(names, parts_.precision); }

  void read_inputs(int index, const std::string& attn, Layer& layer) const {
    const GatedLinearNames names = names_of(sizes_);
    const std::vector<int64_t>& offsets = parts_.layout.offsets[index];
    layer.state = offsets[0];
    const bool gla = !sizes_.corrects() && sizes_.mixer != GatedMixer::kHgrn2;
    const Activation usual = gla && sizes_.taps > 0 ? Activation::kSilu : Activation::kNone;
    const Activation of_v = sizes_.corrects() ? Activation::kSilu : usual;
    layer.q = projection(attn + names.q, usual);
    layer.k = projection(attn + names.k, usual);
    layer.v = projection(attn + names.v, of_v);
    if (sizes_.taps == 0) return;
    layer.q.inputs = offsets[1];
    layer.k.inputs = offsets[2];
    layer.v.inputs = offsets[3];
  }

  Projection projection(const std::string& name, Activation activation) const {
    Projection made;
    made.weight = pack({.weight = name + "_proj.weight"});
    made.activation = activation;
    if (sizes_.taps == 0) return made;
    made.taps = weights_.taps(name + "_conv1d.weight");
    if (sizes_.convolution_bias) made.bias = weights_.matrix(name + "_conv1d.bias");
    made.convolution = {made.taps.view, made.bias.view, activation};
    return made;
  }

  void read_recurrence(int index, const std::string& attn, Layer& layer) const {
    switch (sizes_.mixer) {
      case GatedMixer::kGla:
        layer.decay_in = pack({.weight = attn + "gk_proj.0.weight"});
        layer.decay = pack({.weight = attn + "gk_proj.1.weight", .bias = attn + "gk_proj.1.bias"});
        break;
      case GatedMixer::kRetNet:
        layer.decay_rate = of_heads(retentions(sizes_.heads));
        break;
      case GatedMixer::kDeltaNet:
        break;
      case GatedMixer::kGatedDeltaNet:
        layer.decay = pack({.weight = attn + "a_proj.weight"});
        layer.decay_bias = of_heads(weights_.numbers(attn + "dt_bias"));
        break;
      case GatedMixer::kKda:
        layer.decay_in = pack({.weight = attn + "f_proj.0.weight"});
        layer.decay = pack({.weight = attn + "f_proj.1.weight"});
        layer.decay_bias = weights_.matrix(attn + "dt_bias");
        break;
      case GatedMixer::kHgrn2:
        layer.decay_rate = weights_.matrix_of(bounds_[index], 1);
        break;
    }
    layer.recurrence = recurrence_of(sizes_);
    auto& terms = std::get<GatedTerms>(layer.recurrence.terms);
    if (terms.decay == DecayKind::kSoftplus) {
      std::vector<float> rates = weights_.numbers(attn + "A_log");
      std::ranges::transform(rates, rates.begin(), rate_of);
      layer.decay_rate = of_heads(rates);
    }
    terms.decay_rate = layer.decay_rate.view;
    terms.decay_bias = layer.decay_bias.view;
    if (sizes_.corrects() && sizes_.beta) layer.beta = pack({.weight = attn + "b_proj.weight"});
  }

  // One number per head, repeated for all channels of its keys.
  Matrix of_heads(std::span<const float> numbers) const {
    return weights_.matrix_of(repeated(numbers, sizes_.dk), 1);
  }

  void read_output(const std::string& attn, Layer& layer) const {
    const bool hgrn2 = sizes_.mixer == GatedMixer::kHgrn2;  // norms all heads together
    const int groups = hgrn2 ? 1 : sizes_.heads;
    const std::string norm = attn + names_of(sizes_).norm + ".weight";
    layer.output_norm = {weights_.matrix_of(tiled(weights_.numbers(norm), groups), 1),
                         {},
                         hgrn2 ? kHgrn2NormEps : sizes_.norm_eps,
                         groups,
                         NormKind::kRms};
    layer.out = pack({.weight = attn + "o_proj.weight"});
    if (!sizes_.gate) return;
    if (sizes_.gate_rank == 0) {
      layer.gate = pack({.weight = attn + "g_proj.weight"});
      return;
    }
    layer.gate_in = pack({.weight = attn + "g_proj.0.weight"});
    layer.gate = pack({.weight = attn + "g_proj.1.weight", .bias = attn + "g_proj.1.bias"});
  }

  const GatedLinearSpec& sizes_;
  const WeightReader weights_;
  const NetworkParts& parts_;
  std::vector<std::vector<float>> bounds_;
};

class GatedLinear final : public LayeredNetwork {
 public:
  GatedLinear(const GatedLinearSpec& sizes, const NetworkParts& parts);

 private:
  void pass(const Run& run) const override;
  void project(const Run& run, const Layer& layer) const;
  void mix(const Run& run, const Layer& layer) const;
  void feed_forward(const Run& run, const Layer& layer) const;

  const GatedLinearSpec sizes_;

  std::vector<Layer> layers_;

  // Activations for the largest batch.
  Matrix u_, q_, k_, v_, decay_, decay_low_, beta_, gate_, gate_low_, y_, hidden_;
};

GatedLinear::GatedLinear(const GatedLinearSpec& sizes, const NetworkParts& parts)
    : LayeredNetwork(parts, kTable, sizes.width, sizes.rotates() ? sizes.dk : 0), sizes_(sizes) {
  const Loader loader(sizes, parts);
  if (sizes.rotates()) {
    embedding_.position = PositionKind::kSinusoidal;
    embedding_.position_width = sizes.dk;
  }
  for (int i = 0; i < sizes.layers; ++i) layers_.push_back(loader.layer(i));
  read_head(parts, loader.norm("model.norm.weight"), sizes.tied ? kTable : "lm_head.weight");
  const auto device = [&](int cols) { return activations(parts, cols); };
  u_ = device(sizes.width);
  q_ = device(sizes.query_width());
  k_ = device(sizes.key_width());
  v_ = device(sizes.value_width());
  y_ = device(sizes.output_width());
  hidden_ = device(sizes.ffn);
  if (sizes.gate) gate_ = device(sizes.output_width());
  if (sizes.gate_rank > 0) gate_low_ = device(sizes.gate_rank);
  if (sizes.decay_width() > 0) decay_ = device(sizes.decay_width());
  if (sizes.decay_rank > 0) decay_low_ = device(sizes.decay_rank);
  if (sizes.corrects() && sizes.beta) beta_ = device(sizes.heads);
}

// Runs all products of the normed input at once, then the second products of low rank, then the
// convolutions of q, k and v.
void GatedLinear::project(const Run& run, const Layer& layer) const {
  const View u = run.of(u_.view);
  Products first, second;
  const std::pair<const Projection&, View> all[] = {
      {layer.q, run.of(q_.view)}, {layer.k, run.of(k_.view)}, {layer.v, run.of(v_.view)}};
  for (const auto& [of, out] : all) {
    first.add({u, &of.weight, sizes_.taps > 0 ? Activation::kNone : of.activation, out});
  }
  const auto add = [&](const Weight& in, const Weight& weight, const Matrix& low,
                       const Matrix& out) {
    if (weight.out == 0) return;
    if (in.out > 0) first.add({u, &in, Activation::kNone, run.of(low.view)});
    const Product last = {in.out > 0 ? run.of(low.view) : u, &weight, Activation::kNone,
                          run.of(out.view)};
    (in.out > 0 ? second : first).add(last);
  };
  add(layer.decay_in, layer.decay, decay_low_, decay_);
  add({}, layer.beta, {}, beta_);
  add(layer.gate_in, layer.gate, gate_low_, gate_);
  first.compute(run.lane);
  second.compute(run.lane);
  if (sizes_.taps == 0) return;
  const auto convolved = [&](int i) {
    const auto& [of, out] = all[i];
    return Convolved{out, &of.convolution, run.states_at(of.inputs), out};
  };
  const Convolved convolutions[] = {convolved(0), convolved(1), convolved(2)};
  run.lane.convolves(run.rows, convolutions);
}

void GatedLinear::mix(const Run& run, const Layer& layer) const {
  Backend& lane = run.lane;
  const View x = stream(run);
  lane.norm(x, View{}, layer.norm.norm(), run.of(u_.view));
  project(run, layer);
  RecurrenceInputs inputs = {.q = run.of(q_.view), .k = run.of(k_.view), .v = run.of(v_.view)};
  if (sizes_.mixer == GatedMixer::kHgrn2) {
    inputs.decay = std::exchange(inputs.k, {});
  } else if (sizes_.decay_width() > 0) {
    inputs.decay = run.of(decay_.view);
  }
  if (layer.beta.out > 0) inputs.rate = run.of(beta_.view);
  if (sizes_.rotates()) inputs.turn = positions(run);
  const View y = run.of(y_.view);
  lane.recur(run.rows, run.control, layer.recurrence, inputs, run.states_at(layer.state), y);
  if (sizes_.gate) {
    const bool kda = sizes_.mixer == GatedMixer::kKda;
    lane.gated_norm(
        y, layer.output_norm.norm(),
        {.by = run.of(gate_.view), .activation = kda ? Activation::kSigmoid : Activation::kSilu},
        y);
  } else {
    lane.norm(y, View{}, layer.output_norm.norm(), y);
  }
  lane.matmul(y, layer.out, {Activation::kNone, {}, x}, x);
}

// down(silu(gate(u)) * up(u)).
void GatedLinear::feed_forward(const Run& run, const Layer& layer) const {
  const View x = stream(run);
  const View u = run.of(u_.view);
  const View hidden = run.of(hidden_.view);
  run.lane.norm(x, View{}, layer.ffn_norm.norm(), u);
  const Product gated = {u, &layer.ffn_gate, Activation::kSilu, hidden, &layer.ffn_up};
  run.lane.matmuls({&gated, 1});
  run.lane.matmul(hidden, layer.ffn_down, {Activation::kNone, {}, x}, x);
}

void GatedLinear::pass(const Run& run) const {
  for (const Layer& layer : layers_) {
    mix(run, layer);
    feed_forward(run, layer);
  }
}

}  // namespace

std::unique_ptr<Network> make_network(const GatedLinearSpec& sizes, const NetworkParts& parts) {
  return std::make_unique<GatedLinear>(sizes, parts);
}

}  // namespace runnel
