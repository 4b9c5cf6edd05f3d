#include "models/gated_linear/network.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/matrix.h"
#include "models/weights.h"

namespace runnel {
namespace {

constexpr float kHgrn2NormEps = 1e-5F;  // whatever the file says: its code does not pass norm_eps

// A projection, through its convolution where there is one.
struct Projection {
  Weight weight;
  Activation activation;  // of the product; with a convolution that one has it
  Matrix taps, bias;
  Convolution convolution;
  int64_t inputs = 0;  // the convolution's state: bytes from the start of a slot
};

struct Layer {
  Matrix norm, ffn_norm;
  Projection q, k, v;
  Weight decay_in, decay;  // decay_in: of low rank
  Weight beta;
  Weight gate_in, gate;
  Matrix decay_rate, decay_bias;
  Recurrence recurrence;
  Matrix output_norm;
  Weight out;
  Weight ffn_gate, ffn_up, ffn_down;
  int64_t state = 0;  // bytes from the start of a slot
};

// The share of one layer's lower bound: sums of the softmax over layers, without the first row.
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

  Layer layer(int index) const {
    const std::string name = "model.layers." + std::to_string(index) + ".";
    Layer layer;
    layer.norm = weights_.matrix(name + "attn_norm.weight");
    layer.ffn_norm = weights_.matrix(name + "mlp_norm.weight");
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
        layer.decay_rate = of_heads([](int head) { return 1.0 - std::exp2(-5.0 - head); });
        break;
      case GatedMixer::kDeltaNet:
        break;
      case GatedMixer::kGatedDeltaNet: {
        layer.decay = pack({.weight = attn + "a_proj.weight"});
        const std::vector<float> bias = weights_.numbers(attn + "dt_bias");
        layer.decay_bias = of_heads([&](int head) { return bias[head]; });
        break;
      }
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
      const std::vector<float> log = weights_.numbers(attn + "A_log");
      // Finite, so that a softplus of 0 keeps the state as it is.
      layer.decay_rate =
          of_heads([&](int head) { return std::min(std::exp(double{log[head]}), 3e38); });
    }
    terms.decay_rate = layer.decay_rate.view;
    terms.decay_bias = layer.decay_bias.view;
    if (sizes_.corrects() && sizes_.beta) layer.beta = pack({.weight = attn + "b_proj.weight"});
  }

  // A number of each head for all channels of its keys.
  template <typename Number>
  Matrix of_heads(const Number& number) const {
    std::vector<float> all;
    for (int head = 0; head < sizes_.heads; ++head) {
      all.insert(all.end(), sizes_.dk, static_cast<float>(number(head)));
    }
    return weights_.matrix_of(all, 1);
  }

  void read_output(const std::string& attn, Layer& layer) const {
    const std::vector<float> of_head = weights_.numbers(attn + names_of(sizes_).norm + ".weight");
    std::vector<float> scale;
    while (std::ssize(scale) < sizes_.output_width()) {
      scale.insert(scale.end(), of_head.begin(), of_head.end());
    }
    layer.output_norm = weights_.matrix_of(scale, 1);
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

class GatedLinear final : public Network {
 public:
  GatedLinear(const GatedLinearSpec& sizes, const NetworkParts& parts);

  void forward(const Run& run) const override;

 private:
  Norm norm(const Matrix& scale) const { return {scale.view, {}, sizes_.norm_eps, NormKind::kRms}; }
  Norm output_norm(const Layer& layer) const;
  View stream(const Run& run) const { return run.of(x_.view).columns(0, sizes_.width); }
  void project(const Run& run, const Layer& layer) const;
  void low_rank(const Run& run, const Weight& in, const Weight& weight, const Matrix& low,
                View out) const;
  void mix(const Run& run, const Layer& layer) const;
  void feed_forward(const Run& run, const Layer& layer) const;

  const GatedLinearSpec sizes_;

  Matrix table_;
  Embedding embedding_;
  std::vector<Layer> layers_;
  Matrix final_norm_;
  Weight head_;

  // Activations at the largest batch. RetNet's x_ has the sines and cosines of the positions after
  // the residual stream.
  Matrix x_, u_, q_, k_, v_, decay_, decay_low_, beta_, gate_, gate_low_, y_, hidden_;
};

GatedLinear::GatedLinear(const GatedLinearSpec& sizes, const NetworkParts& parts) : sizes_(sizes) {
  const Loader loader(sizes, parts);
  const std::string table = "model.embeddings.weight";
  table_ = loader.weights().vectors(table, embedding_);
  if (sizes.rotates()) {
    embedding_.position = PositionKind::kSinusoidal;
    embedding_.position_width = sizes.dk;
  }
  for (int i = 0; i < sizes.layers; ++i) layers_.push_back(loader.layer(i));
  final_norm_ = loader.weights().matrix("model.norm.weight");
  head_ = loader.weights().pack(
      {.weight = sizes.tied ? table : "lm_head.weight", .rows = parts.bundle.spec.vocabulary},
      parts.precision);
  const auto device = [&](int cols) {
    return make_matrix(parts.backend, DType::kF32, parts.limits.values, cols, Memory::kDevice);
  };
  x_ = device(sizes.width + (sizes.rotates() ? sizes.dk : 0));
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

// HGRN2 norms all heads together.
Norm GatedLinear::output_norm(const Layer& layer) const {
  const bool hgrn2 = sizes_.mixer == GatedMixer::kHgrn2;
  return {layer.output_norm.view,
          {},
          hgrn2 ? kHgrn2NormEps : sizes_.norm_eps,
          NormKind::kRms,
          hgrn2 ? 1 : sizes_.heads};
}

// The products and convolutions that give q, k and v.
void GatedLinear::project(const Run& run, const Layer& layer) const {
  const View u = run.of(u_.view);
  const std::pair<const Projection&, View> all[] = {
      {layer.q, run.of(q_.view)}, {layer.k, run.of(k_.view)}, {layer.v, run.of(v_.view)}};
  const auto product = [&](int i) {
    const auto& [of, out] = all[i];
    return Product{u, &of.weight, sizes_.taps > 0 ? Activation::kNone : of.activation, out};
  };
  const Product products[] = {product(0), product(1), product(2)};
  run.lane.matmuls(products);
  if (sizes_.taps == 0) return;
  for (const auto& [of, out] : all) {
    run.lane.convolve(run.rows, out, of.convolution, run.states_at(of.inputs), out);
  }
}

// out = the normed input through one matrix, or through two of low rank.
void GatedLinear::low_rank(const Run& run, const Weight& in, const Weight& weight,
                           const Matrix& low, View out) const {
  View x = run.of(u_.view);
  if (in.out > 0) {
    run.lane.matmul(x, in, Activation::kNone, run.of(low.view));
    x = run.of(low.view);
  }
  run.lane.matmul(x, weight, Activation::kNone, out);
}

void GatedLinear::mix(const Run& run, const Layer& layer) const {
  Backend& lane = run.lane;
  const View x = stream(run);
  lane.norm(x, View{}, norm(layer.norm), run.of(u_.view));
  project(run, layer);
  RecurrenceInputs inputs = {.q = run.of(q_.view), .k = run.of(k_.view), .v = run.of(v_.view)};
  if (sizes_.mixer == GatedMixer::kHgrn2) {
    inputs.decay = std::exchange(inputs.k, {});
  } else if (sizes_.decay_width() > 0) {
    inputs.decay = run.of(decay_.view);
    low_rank(run, layer.decay_in, layer.decay, decay_low_, inputs.decay);
  }
  if (layer.beta.out > 0) {
    inputs.rate = run.of(beta_.view);
    lane.matmul(run.of(u_.view), layer.beta, Activation::kNone, inputs.rate);
  }
  if (sizes_.rotates()) inputs.turn = run.of(x_.view).columns(sizes_.width, sizes_.dk);
  const View y = run.of(y_.view);
  lane.recur(run.rows, run.control, layer.recurrence, inputs, run.states_at(layer.state), y);
  if (sizes_.gate) {
    const View gate = run.of(gate_.view);
    low_rank(run, layer.gate_in, layer.gate, gate_low_, gate);
    const bool kda = sizes_.mixer == GatedMixer::kKda;
    lane.gated_norm(y, output_norm(layer),
                    {.by = gate, .activation = kda ? Activation::kSigmoid : Activation::kSilu}, y);
  } else {
    lane.norm(y, View{}, output_norm(layer), y);
  }
  lane.matmul(y, layer.out, {Activation::kNone, {}, x}, x);
}

// down(silu(gate(u)) * up(u)).
void GatedLinear::feed_forward(const Run& run, const Layer& layer) const {
  const View x = stream(run);
  const View u = run.of(u_.view);
  const View hidden = run.of(hidden_.view);
  run.lane.norm(x, View{}, norm(layer.ffn_norm), u);
  run.lane.matmul(u, layer.ffn_gate, Activation::kSilu, hidden);
  run.lane.matmul(u, layer.ffn_up, {Activation::kNone, hidden}, hidden);
  run.lane.matmul(hidden, layer.ffn_down, {Activation::kNone, {}, x}, x);
}

// One step over a run of rows: the network, and the head where somebody looks at it.
void GatedLinear::forward(const Run& run) const {
  run.lane.embed(run.rows, run.values, run.control, embedding_, run.of(x_.view));
  for (const Layer& layer : layers_) {
    mix(run, layer);
    feed_forward(run, layer);
  }
  if (run.read == 0) return;
  const View read = stream(run).top(run.read);
  run.lane.norm(read, View{}, norm(final_norm_), read);
  run.lane.matmul(read, head_, Activation::kNone, run.head);
}

}  // namespace

std::unique_ptr<Network> make_network(const GatedLinearSpec& sizes, const NetworkParts& parts) {
  return std::make_unique<GatedLinear>(sizes, parts);
}

}  // namespace runnel
