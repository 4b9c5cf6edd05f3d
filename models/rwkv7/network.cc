#include "models/rwkv7/network.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/layered_network.h"

namespace runnel {
namespace {

constexpr const char* kTable = "emb.weight";

// The mixes of an input with the previous one, in the order of a layer's mu.
enum Mix { kR, kW, kK, kV, kA, kG };

// second(activation(first(x))), where both matrices are of low rank.
struct LowRank {
  Weight first, second;
};

struct Layer {
  NormWeights ln1, ln2;
  Matrix mu;  // [mixes, width]
  Weight receptance, key, value, output;
  LowRank decay, rate, mix, gate;  // w, a, v, g
  Matrix k_k, k_a, r_k;
  Recurrence recurrence;
  NormWeights ln_x;
  Matrix ffn_mu;
  Weight ffn_key, ffn_value;
  // Offsets of S and of the two shifts: bytes from the start of a slot.
  int64_t state = 0, time_input = 0, channel_input = 0;
};

// Reads a bundle by official names.
class Loader {
 public:
  Loader(const Rwkv7Spec& sizes, const WeightReader& weights, Precision precision)
      : sizes_(sizes), weights_(weights), precision_(precision) {}

  NormWeights norm(const std::string& name) const {
    const std::vector<float> zeros(sizes_.width);
    return {vector(name + ".weight"),
            sizes_.norm_bias ? vector(name + ".bias") : weights_.matrix_of(zeros, 1),
            sizes_.norm_eps};
  }

  Layer layer(int index) const {
    const std::string block = "blocks." + std::to_string(index) + ".";
    Layer layer;
    layer.ln1 = norm(block + "ln1");
    read_mixer(block + "att.", index == 0, layer);
    layer.ln2 = norm(block + "ln2");
    layer.ffn_mu = vector(block + "ffn.x_k");
    layer.ffn_key = linear(block + "ffn.key");
    layer.ffn_value = linear(block + "ffn.value");
    return layer;
  }

 private:
  std::string in_file(const std::string& official) const {
    return name_in_file(sizes_.names, official);
  }
  Matrix vector(const std::string& name) const { return weights_.rows({in_file(name)}); }
  Weight linear(const std::string& name) const {
    return weights_.pack({.weight = in_file(name + ".weight")}, precision_);
  }

  // Reads the tensors NAME1, NAME2 and, with a bias, NAME0.
  LowRank low_rank(const std::string& name, bool bias) const {
    const bool transposed = sizes_.names == Rwkv7Names::kOfficial;
    return {weights_.pack({.weight = in_file(name + "1"), .transposed = transposed}, precision_),
            weights_.pack({.weight = in_file(name + "2"),
                           .bias = bias ? in_file(name + "0") : "",
                           .transposed = transposed},
                          precision_)};
  }

  Matrix mu(const std::string& att) const {
    if (has_one_mix(sizes_.names)) return weights_.matrix(in_file(att + "x_x"));
    std::vector<std::string> names;
    for (const char* const mix : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"}) {
      names.push_back(in_file(att + mix));
    }
    return weights_.rows(names);
  }

  void read_mixer(const std::string& att, bool is_first, Layer& layer) const {
    layer.mu = mu(att);
    layer.receptance = linear(att + "receptance");
    layer.key = linear(att + "key");
    layer.value = linear(att + "value");
    layer.decay = low_rank(att + "w", true);
    layer.rate = low_rank(att + "a", true);
    if (!is_first) layer.mix = low_rank(att + "v", true);
    layer.gate = low_rank(att + "g", false);
    layer.k_k = vector(att + "k_k");
    layer.k_a = vector(att + "k_a");
    layer.r_k = vector(att + "r_k");
    layer.recurrence = recurrence_of(sizes_);
    auto& terms = std::get<Rwkv7Terms>(layer.recurrence.terms);
    terms.k_k = layer.k_k.view;
    terms.k_a = layer.k_a.view;
    terms.r_k = layer.r_k.view;
    layer.ln_x = {vector(att + "ln_x.weight"), vector(att + "ln_x.bias"), sizes_.head_norm_eps,
                  sizes_.heads};
    layer.output = linear(att + "output");
  }

  const Rwkv7Spec& sizes_;
  const WeightReader& weights_;
  const Precision precision_;
};

class Rwkv7 final : public LayeredNetwork {
 public:
  Rwkv7(const Rwkv7Spec& sizes, const NetworkParts& parts);

 private:
  void pass(const Run& run) const override;
  void allocate_activations(const NetworkParts& parts);
  void project(const Run& run, const Layer& layer, bool is_first, const RecurrenceInputs& inputs,
               View gate) const;
  void time_mixing(const Run& run, const Layer& layer, bool is_first) const;
  void channel_mixing(const Run& run, const Layer& layer) const;

  const Rwkv7Spec sizes_;

  NormWeights ln0_;
  std::vector<Layer> layers_;

  // Activations for the largest batch, named as in the paper. `first_` is v of the first layer.
  Matrix normed_, mixed_, low_, r_, w_, k_, v_, first_, mix_, a_, g_, bonus_, y_, hidden_;
};

Rwkv7::Rwkv7(const Rwkv7Spec& sizes, const NetworkParts& parts)
    : LayeredNetwork(parts, name_in_file(sizes.names, kTable), sizes.width), sizes_(sizes) {
  const WeightReader weights(parts.bundle, parts.backend);
  const Loader loader(sizes, weights, parts.precision);
  if (sizes.input_norm) ln0_ = loader.norm("blocks.0.ln0");
  for (int i = 0; i < sizes.layers; ++i) {
    const std::vector<int64_t>& offsets = parts.layout.offsets[i];
    layers_.push_back(loader.layer(i));
    layers_.back().state = offsets[0];
    layers_.back().time_input = offsets[1];
    layers_.back().channel_input = offsets[2];
  }
  read_head(parts, loader.norm("ln_out"),
            name_in_file(sizes.names, sizes.tied ? kTable : "head.weight"));
  allocate_activations(parts);
}

void Rwkv7::allocate_activations(const NetworkParts& parts) {
  const auto device = [&](int cols) { return activations(parts, cols); };
  const Rwkv7Ranks& ranks = sizes_.ranks;
  mixed_ = device(layers_[0].mu.view.rows * sizes_.width);
  low_ = device(ranks.decay + ranks.rate + ranks.value + ranks.gate);
  for (Matrix* matrix : {&normed_, &r_, &w_, &k_, &a_}) *matrix = device(sizes_.width);
  for (Matrix* matrix : {&v_, &first_, &mix_, &g_, &bonus_, &y_}) {
    *matrix = device(sizes_.value_width);
  }
  hidden_ = device(sizes_.ffn);
}

// Computes what the recurrence and its gate need from the mixed inputs: seven products, then the
// second halves of those of low rank.
void Rwkv7::project(const Run& run, const Layer& layer, bool is_first,
                    const RecurrenceInputs& inputs, View gate) const {
  const auto mix = [&](Mix which) {
    return run.of(mixed_.view).columns(which * sizes_.width, sizes_.width);
  };
  int column = 0;
  const auto low = [&](const LowRank& weights) {
    const View of = run.of(low_.view).columns(column, weights.first.out);
    column += weights.first.out;
    return of;
  };
  const View w = low(layer.decay);
  const View a = low(layer.rate);
  const View g = low(layer.gate);
  const View v = is_first ? View{} : low(layer.mix);
  const Product first[] = {{mix(kR), &layer.receptance, Activation::kNone, inputs.q},
                           {mix(kK), &layer.key, Activation::kNone, inputs.k},
                           {mix(kV), &layer.value, Activation::kNone, inputs.v},
                           {mix(kW), &layer.decay.first, Activation::kTanh, w},
                           {mix(kA), &layer.rate.first, Activation::kNone, a},
                           {mix(kG), &layer.gate.first, Activation::kSigmoid, g},
                           {mix(kV), &layer.mix.first, Activation::kNone, v}};
  const Product second[] = {{w, &layer.decay.second, Activation::kNone, inputs.decay},
                            {a, &layer.rate.second, Activation::kNone, inputs.rate},
                            {g, &layer.gate.second, Activation::kNone, gate},
                            {v, &layer.mix.second, Activation::kNone, inputs.mix}};
  const size_t absent = is_first ? 1 : 0;  // the first layer has nothing to mix v with
  run.lane.matmuls(std::span(first).first(std::size(first) - absent));
  run.lane.matmuls(std::span(second).first(std::size(second) - absent));
}

void Rwkv7::time_mixing(const Run& run, const Layer& layer, bool is_first) const {
  Backend& lane = run.lane;
  const View x = stream(run);
  lane.norm(x, View{}, layer.ln1.norm(), run.of(normed_.view));
  lane.shift(run.rows, run.of(normed_.view), layer.mu.view, run.states_at(layer.time_input),
             run.of(mixed_.view));

  RecurrenceInputs inputs = {.q = run.of(r_.view),
                             .k = run.of(k_.view),
                             .v = run.of(is_first ? first_.view : v_.view),
                             .decay = run.of(w_.view),
                             .rate = run.of(a_.view),
                             .bonus = run.of(bonus_.view)};
  if (!is_first) {
    inputs.first = run.of(first_.view);
    inputs.mix = run.of(mix_.view);
  }
  const View g = run.of(g_.view);
  project(run, layer, is_first, inputs, g);
  const View y = run.of(y_.view);
  lane.recur(run.rows, run.control, layer.recurrence, inputs, run.states_at(layer.state), y);
  lane.gated_norm(y, layer.ln_x.norm(),
                  {.by = g, .activation = Activation::kNone, .plus = inputs.bonus}, y);
  lane.matmul(y, layer.output, {Activation::kNone, {}, x}, x);
}

void Rwkv7::channel_mixing(const Run& run, const Layer& layer) const {
  const View x = stream(run);
  const View k = run.of(normed_.view);
  run.lane.norm(x, View{}, layer.ln2.norm(), k);
  run.lane.shift(run.rows, k, layer.ffn_mu.view, run.states_at(layer.channel_input), k);
  run.lane.matmul(k, layer.ffn_key, Activation::kSquaredRelu, run.of(hidden_.view));
  run.lane.matmul(run.of(hidden_.view), layer.ffn_value, {Activation::kNone, {}, x}, x);
}

void Rwkv7::pass(const Run& run) const {
  const View x = stream(run);
  if (sizes_.input_norm) run.lane.norm(x, View{}, ln0_.norm(), x);
  for (int i = 0; i < sizes_.layers; ++i) {
    time_mixing(run, layers_[i], i == 0);
    channel_mixing(run, layers_[i]);
  }
}

}  // namespace

std::unique_ptr<Network> make_network(const Rwkv7Spec& sizes, const NetworkParts& parts) {
  return std::make_unique<Rwkv7>(sizes, parts);
}

}  // namespace runnel
