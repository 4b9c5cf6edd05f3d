#include "models/rwkv6/network.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/layered_network.h"

namespace runnel {
namespace {

// The mixes of an input with the previous one, in the order of time_maa_w1 and w2. Version 5 has no
// kW, so its rows of mu begin with that of kK.
enum Mix { kW, kK, kV, kR, kG, kMixes };
constexpr const char* kMixNames[] = {"w", "k", "v", "r", "g"};

struct Layer {
  NormWeights ln1, ln2, ln_x;
  Matrix mu;           // [4, width]; version 5 only
  Weight mix_in;       // applied to [x | d]; version 6 only
  Weight mix[kMixes];  // version 6 only
  Weight decay_in, decay;
  Weight receptance, key, value, gate, output;
  Matrix constant_decay, bonus;
  Recurrence recurrence;
  Matrix ffn_mu;  // [2, width]: rows k and r
  Weight ffn_key, ffn_receptance, ffn_value;
  // Offsets of S and of the latest inputs: bytes from the start of a slot.
  int64_t state = 0, time_input = 0, channel_input = 0;
};

// Transposes [rows, cols] to [cols, rows].
std::vector<float> transposed(std::span<const float> from, int rows) {
  const auto cols = static_cast<int>(from.size()) / rows;
  std::vector<float> to(from.size());
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col) to[col * rows + row] = from[row * cols + col];
  }
  return to;
}

// Reads the layers of a bundle.
class Loader {
 public:
  Loader(const Rwkv6Spec& sizes, const NetworkParts& parts)
      : sizes_(sizes), weights_(parts.bundle, parts.backend), precision_(parts.precision) {}

  const WeightReader& weights() const { return weights_; }

  NormWeights norm(const std::string& name) const {
    return {weights_.matrix(name + ".weight"), weights_.matrix(name + ".bias"), sizes_.norm_eps};
  }

  Layer layer(int index) const {
    const std::string block = "blocks." + std::to_string(index) + ".";
    Layer layer;
    layer.ln1 = norm(block + "ln1");
    read_mixes(block + "att.", layer);
    read_mixer(block + "att.", layer);
    layer.ln2 = norm(block + "ln2");
    layer.ffn_mu = mu(block + "ffn.", {"k", "r"});
    layer.ffn_key = linear(block + "ffn.key");
    layer.ffn_receptance = linear(block + "ffn.receptance");
    layer.ffn_value = linear(block + "ffn.value");
    return layer;
  }

 private:
  Weight linear(const std::string& name) const {
    return weights_.pack({.weight = name + ".weight"}, precision_);
  }

  // The weights of the difference to the previous input. Version 5's files have the weights of the
  // new input instead.
  Matrix mu(const std::string& part, std::initializer_list<const char*> names) const {
    std::vector<float> all;
    for (const char* const name : names) {
      const std::string tensor = part + (sizes_.is_six() ? "time_maa_" : "time_mix_") + name;
      for (const float x : weights_.numbers(tensor)) all.push_back(sizes_.is_six() ? x : 1.0F - x);
    }
    return weights_.matrix_of(all, static_cast<int>(names.size()));
  }

  // In version 6, tanh((x + d maa_x) w1) is a product of [x | d], and each mix is (low w2 + maa) d
  // + x.
  void read_mixes(const std::string& att, Layer& layer) const {
    if (!sizes_.is_six()) {
      layer.mu = mu(att, {"k", "v", "r", "g"});
      return;
    }
    const std::vector<float> w1 = weights_.numbers(att + "time_maa_w1");
    const std::vector<float> maa_x = weights_.numbers(att + "time_maa_x");
    const int columns = kMixes * sizes_.mix_rank;
    std::vector<float> both = w1;
    for (size_t i = 0; i < w1.size(); ++i) both.push_back(w1[i] * maa_x[i / columns]);
    layer.mix_in = weights_.pack(transposed(both, 2 * sizes_.width), columns, {}, precision_);
    const std::vector<float> w2 = weights_.numbers(att + "time_maa_w2");
    const size_t each = w2.size() / kMixes;
    for (int mix = 0; mix < kMixes; ++mix) {
      const auto part = std::span(w2).subspan(mix * each, each);
      layer.mix[mix] =
          weights_.pack(transposed(part, sizes_.mix_rank), sizes_.width,
                        weights_.numbers(att + "time_maa_" + kMixNames[mix]), precision_);
    }
  }

  void read_mixer(const std::string& att, Layer& layer) const {
    layer.receptance = linear(att + "receptance");
    layer.key = linear(att + "key");
    layer.value = linear(att + "value");
    layer.gate = linear(att + "gate");
    layer.output = linear(att + "output");
    layer.bonus = row(weights_.numbers(att + "time_faaaa"));
    if (sizes_.is_six()) {
      layer.decay_in =
          weights_.pack({.weight = att + "time_decay_w1", .transposed = true}, precision_);
      layer.decay = weights_.pack(
          {.weight = att + "time_decay_w2", .bias = att + "time_decay", .transposed = true},
          precision_);
    } else {
      std::vector<float> decay = weights_.numbers(att + "time_decay");
      for (float& x : decay) x = static_cast<float>(std::exp(-std::exp(double{x})));
      layer.constant_decay = row(decay);
    }
    layer.recurrence = recurrence_of(sizes_);
    auto& terms = std::get<GatedTerms>(layer.recurrence.terms);
    terms.decay_rate = layer.constant_decay.view;
    terms.bonus = layer.bonus.view;
    layer.ln_x = {row(weights_.numbers(att + "ln_x.weight")),
                  row(weights_.numbers(att + "ln_x.bias")), sizes_.head_norm_eps, sizes_.heads};
  }

  Matrix row(const std::vector<float>& numbers) const { return weights_.matrix_of(numbers, 1); }

  const Rwkv6Spec& sizes_;
  const WeightReader weights_;
  const Precision precision_;
};

class Rwkv6 final : public LayeredNetwork {
 public:
  Rwkv6(const Rwkv6Spec& sizes, const NetworkParts& parts);

 private:
  void pass(const Run& run) const override;
  View block(const Run& run, const Matrix& matrix, int index) const {
    return run.of(matrix.view).columns(index * sizes_.width, sizes_.width);
  }
  // A mix of the time mixing's input.
  View mixed(const Run& run, Mix mix) const {
    return block(run, mixed_, sizes_.is_six() ? mix : mix - kK);
  }
  void mix_inputs(const Run& run, const Layer& layer) const;
  void time_mixing(const Run& run, const Layer& layer) const;
  void channel_mixing(const Run& run, const Layer& layer) const;

  const Rwkv6Spec sizes_;

  Matrix difference_;
  Convolution to_difference_;
  NormWeights ln0_;
  std::vector<Layer> layers_;

  // Activations for the largest batch. `input_` is [x | d], where d is the previous input minus x.
  Matrix input_, low_, mixed_, r_, k_, v_, w_, w_low_, g_, y_, hidden_;
};

Rwkv6::Rwkv6(const Rwkv6Spec& sizes, const NetworkParts& parts)
    : LayeredNetwork(parts, "emb.weight", sizes.width), sizes_(sizes) {
  const Loader loader(sizes, parts);
  ln0_ = loader.norm("blocks.0.ln0");
  for (int i = 0; i < sizes.layers; ++i) {
    const std::vector<int64_t>& offsets = parts.layout.offsets[i];
    layers_.push_back(loader.layer(i));
    layers_.back().state = offsets[0];
    layers_.back().time_input = offsets[1];
    layers_.back().channel_input = offsets[2];
  }
  read_head(parts, loader.norm("ln_out"), "head.weight");
  std::vector<float> taps(2 * sizes.width, 1.0F);
  std::fill(taps.begin() + sizes.width, taps.end(), -1.0F);
  difference_ = loader.weights().matrix_of(taps, 2);
  to_difference_ = {difference_.view, {}, Activation::kNone};
  const auto device = [&](int cols) { return activations(parts, cols); };
  input_ = device(2 * sizes.width);
  mixed_ = device(kMixes * sizes.width);
  for (Matrix* matrix : {&r_, &k_, &v_, &g_, &y_}) *matrix = device(sizes.width);
  hidden_ = device(sizes.ffn);
  if (!sizes.is_six()) return;
  low_ = device(kMixes * sizes.mix_rank);
  w_ = device(sizes.width);
  w_low_ = device(sizes.decay_rank);
}

// Mixes the normed input with the previous one.
void Rwkv6::mix_inputs(const Run& run, const Layer& layer) const {
  Backend& lane = run.lane;
  const View x = block(run, input_, 0);
  lane.norm(stream(run), View{}, layer.ln1.norm(), x);
  if (!sizes_.is_six()) {
    lane.shift(run.rows, x, layer.mu.view, run.states_at(layer.time_input),
               run.of(mixed_.view).columns(0, (kMixes - kK) * sizes_.width));
    return;
  }
  const View d = block(run, input_, 1);
  lane.convolve(run.rows, x, to_difference_, run.states_at(layer.time_input), d);
  const View low = run.of(low_.view);
  lane.matmul(run.of(input_.view), layer.mix_in, Activation::kTanh, low);
  const auto product = [&](Mix mix) {
    return Product{low.columns(mix * sizes_.mix_rank, sizes_.mix_rank),
                   &layer.mix[mix],
                   {Activation::kNone, d, x},
                   mixed(run, mix)};
  };
  const Product products[] = {product(kW), product(kK), product(kV), product(kR), product(kG)};
  lane.matmuls(products);
}

void Rwkv6::time_mixing(const Run& run, const Layer& layer) const {
  Backend& lane = run.lane;
  mix_inputs(run, layer);
  RecurrenceInputs inputs = {.q = run.of(r_.view), .k = run.of(k_.view), .v = run.of(v_.view)};
  const View g = run.of(g_.view);
  const bool six = sizes_.is_six();
  const View w = six ? mixed(run, kW) : View{};
  const View w_low = six ? run.of(w_low_.view) : View{};
  const Product products[] = {{mixed(run, kR), &layer.receptance, Activation::kNone, inputs.q},
                              {mixed(run, kK), &layer.key, Activation::kNone, inputs.k},
                              {mixed(run, kV), &layer.value, Activation::kNone, inputs.v},
                              {mixed(run, kG), &layer.gate, Activation::kNone, g},
                              {w, &layer.decay_in, Activation::kTanh, w_low}};
  const size_t absent = six ? 0 : 1;  // RWKV-5's decay is constant
  lane.matmuls(std::span(products).first(std::size(products) - absent));
  if (six) {
    inputs.decay = run.of(w_.view);
    lane.matmul(w_low, layer.decay, Activation::kNone, inputs.decay);
  }
  const View x = stream(run);
  const View y = run.of(y_.view);
  lane.recur(run.rows, run.control, layer.recurrence, inputs, run.states_at(layer.state), y);
  lane.gated_norm(y, layer.ln_x.norm(), {.by = g}, y);
  lane.matmul(y, layer.output, {Activation::kNone, {}, x}, x);
}

void Rwkv6::channel_mixing(const Run& run, const Layer& layer) const {
  const View x = stream(run);
  const View normed = block(run, input_, 0);
  const View r = run.of(r_.view);
  run.lane.norm(x, View{}, layer.ln2.norm(), normed);
  run.lane.shift(run.rows, normed, layer.ffn_mu.view, run.states_at(layer.channel_input),
                 run.of(mixed_.view).columns(0, 2 * sizes_.width));
  const Product products[] = {
      {block(run, mixed_, 0), &layer.ffn_key, Activation::kSquaredRelu, run.of(hidden_.view)},
      {block(run, mixed_, 1), &layer.ffn_receptance, Activation::kSigmoid, r}};
  run.lane.matmuls(products);
  run.lane.matmul(run.of(hidden_.view), layer.ffn_value, {Activation::kNone, r, x}, x);
}

void Rwkv6::pass(const Run& run) const {
  const View x = stream(run);
  run.lane.norm(x, View{}, ln0_.norm(), x);
  for (const Layer& layer : layers_) {
    time_mixing(run, layer);
    channel_mixing(run, layer);
  }
}

}  // namespace

std::unique_ptr<Network> make_network(const Rwkv6Spec& sizes, const NetworkParts& parts) {
  return std::make_unique<Rwkv6>(sizes, parts);
}

}  // namespace runnel
