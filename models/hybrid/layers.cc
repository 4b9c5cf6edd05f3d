#include "models/hybrid/layers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/scalar_math.h"

namespace runnel::hybrid {

std::vector<float> rotary_angles(int64_t positions, int dims, double theta) {
  std::vector<float> angles(positions * dims);
  for (int i = 0; i < dims / 2; ++i) {
    const double frequency = exp_of(-2.0 * i / dims * log_of(theta));
    for (int64_t t = 0; t < positions; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      angles[t * dims + i] = static_cast<float>(std::cos(angle));
      angles[t * dims + dims / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
  return angles;
}

Weight Loader::pack(const std::string& name, bool bias) const {
  return weights_.pack({.weight = name + ".weight", .bias = bias ? name + ".bias" : ""},
                       parts_.precision);
}

Weight Loader::pack_rows(const std::string& name, bool bias, int64_t first, int64_t rows,
                         int64_t every) const {
  return weights_.pack({.weight = name + ".weight",
                        .bias = bias ? name + ".bias" : "",
                        .first = first,
                        .rows = rows,
                        .every = every},
                       parts_.precision);
}

Scaled Loader::scaled(Weight weight, float factor) const {
  Matrix factors;
  if (factor != 1.0F) factors = row_of(std::vector<float>(weight.out, factor));
  return {std::move(weight), std::move(factors)};
}

std::vector<float> Loader::rates(const std::string& tensor) const {
  std::vector<float> rates = weights_.numbers(tensor);
  for (float& x : rates) x = sizes_.gguf ? -x : rate_of(x);
  return rates;
}

Matrix Loader::norm(const std::string& tensor, float factor, int heads) const {
  std::vector<float> scale = weights_.numbers(tensor);
  for (float& x : scale) x = (sizes_.zero_centred() ? 1.0F + x : x) * factor;
  return row_of(tiled(scale, heads));
}

Layer Loader::layer(int index) const {
  Layer layer;
  const std::string norm_name = names_.layer(index) + names_.norm + ".weight";
  if (sizes_.is_recurrent(index)) {
    layer.recurrent_norm = norm(norm_name, sizes_.factors.recurrent_in);
    layer.recurrent = recurrent(index);
  }
  if (sizes_.attends(index)) {
    layer.attention_norm = norm(norm_name, sizes_.factors.attention_in);
    layer.attention = attention(index);
  }
  if (sizes_.feeds(index)) layer.ffn_norm = norm(names_.layer(index) + names_.ffn_norm);
  if (sizes_.dense_ffn(index) > 0) layer.feed_forward = feed_forward(index);
  if (sizes_.mixes(index)) layer.experts = experts(index);
  return layer;
}

RecurrentMixer Loader::recurrent(int index) const {
  const std::string name = names_.layer(index) + names_.recurrent;
  RecurrentMixer mixer;
  const std::string convolution = name + names_.convolution;
  mixer.taps = weights_.taps(convolution + ".weight");
  if (sizes_.convolution_bias) mixer.bias = weights_.matrix(convolution + ".bias");
  mixer.convolution = {mixer.taps.view, mixer.bias.view};
  mixer.out = scaled(pack(name + names_.out, sizes_.out_bias), sizes_.factors.recurrent_out);
  mixer.inputs = parts_.layout.offsets[index][0];
  if (sizes_.style == HybridStyle::kLfm2) {
    read_convolution(name, mixer);
    return mixer;
  }
  mixer.state = parts_.layout.offsets[index][0];
  mixer.inputs = parts_.layout.offsets[index][1];
  mixer.recurrence = recurrence_of(sizes_);
  sizes_.is_mamba2() ? read_mamba2(name, mixer) : read_delta(index, mixer);
  return mixer;
}

void Loader::read_mamba2(const std::string& name, RecurrentMixer& mixer) const {
  mixer.in.weight = pack(name + names_.in, sizes_.in_bias);
  const HybridFactors& factors = sizes_.factors;
  const std::pair<float, int> blocks[] = {{factors.z, sizes_.inner()},
                                          {factors.x, sizes_.inner()},
                                          {factors.b, sizes_.keys()},
                                          {factors.c, sizes_.keys()},
                                          {factors.dt, sizes_.recurrent_heads}};
  std::vector<float> all;
  for (const auto& [factor, columns] : blocks) all.insert(all.end(), columns, factor);
  if (std::ranges::any_of(all, [](float x) { return x != 1.0F; })) mixer.in.factors = row_of(all);
  mixer.decay_rate = row_of(rates(name + names_.rates));
  mixer.decay_bias = weights_.matrix(name + names_.dt_bias);
  mixer.skip = weights_.matrix(name + names_.skip);
  auto& terms = std::get<Mamba2Terms>(mixer.recurrence.terms);
  terms.dt_rate = mixer.decay_rate.view;
  terms.dt_bias = mixer.decay_bias.view;
  terms.skip = mixer.skip.view;
  if (sizes_.gated_norm == GatedNormKind::kNone) return;
  mixer.norm = row_of(weights_.numbers(name + names_.gated_norm + ".weight"));
}

void Loader::read_delta(int index, RecurrentMixer& mixer) const {
  const std::string layer = names_.layer(index);
  const std::string name = layer + names_.recurrent;
  read_projections(layer, mixer);
  mixer.decay_rate = row_of(repeated(rates(name + names_.rates), sizes_.dk));
  mixer.decay_bias = row_of(repeated(weights_.numbers(name + names_.dt_bias), sizes_.dk));
  auto& terms = std::get<GatedTerms>(mixer.recurrence.terms);
  terms.decay_rate = mixer.decay_rate.view;
  terms.decay_bias = mixer.decay_bias.view;
  const std::vector<float> of_head = weights_.numbers(name + names_.gated_norm + ".weight");
  mixer.norm = row_of(tiled(of_head, sizes_.recurrent_heads));
}

// Interleaved projections have the rows [q | k | v | z] and [b | a] of each key head in turn.
void Loader::read_projections(const std::string& layer, RecurrentMixer& mixer) const {
  const int64_t rates = sizes_.recurrent_heads / sizes_.key_heads;  // of a key head
  const std::string qkv = layer + names_.qkv, rate = layer + names_.rate;
  if (sizes_.interleaved == Interleaved::kAll) {
    const int64_t keys = sizes_.dk, values = rates * sizes_.dv;
    const int64_t all = 2 * (keys + values);
    const RowRuns runs[] = {{0, keys, all}, {keys, keys, all}, {2 * keys, values, all}};
    mixer.in.weight = weights_.pack(qkv + ".weight", runs, parts_.precision);
    mixer.z = pack_rows(qkv, false, 2 * keys + values, values, all);
  } else {
    mixer.in.weight = pack(qkv, false);
    mixer.z = pack(layer + names_.z, false);
  }
  if (sizes_.is_qwen3_next()) {
    mixer.rate = pack_rows(rate, false, 0, rates, 2 * rates);
    mixer.dt = pack_rows(rate, false, rates, rates, 2 * rates);
  } else {
    mixer.rate = pack(rate, false);
    mixer.dt = pack(layer + names_.dt, false);
  }
}

// in_proj has the rows [B | C | x].
void Loader::read_convolution(const std::string& name, RecurrentMixer& mixer) const {
  const int width = sizes_.width;
  mixer.before = pack_rows(name + names_.in, sizes_.in_bias, 0, width);
  mixer.after = pack_rows(name + names_.in, sizes_.in_bias, width, width);
  mixer.in.weight = pack_rows(name + names_.in, sizes_.in_bias, int64_t{2} * width, width);
  mixer.convolution.activation = Activation::kNone;
}

AttentionMixer Loader::attention(int index) const {
  const std::string name = names_.layer(index) + names_.attention;
  const bool bias = sizes_.attention_bias;
  AttentionMixer mixer;
  if (sizes_.gates_attention()) {  // query and gate alternate head by head
    const int64_t size = sizes_.head_size;
    mixer.q = pack_rows(name + names_.query, bias, 0, size, 2 * size);
    mixer.gate = pack_rows(name + names_.query, bias, size, size, 2 * size);
  } else {
    mixer.q = pack(name + names_.query, bias);
  }
  mixer.k = scaled(pack(name + names_.key, bias), sizes_.factors.key);
  mixer.v = pack(name + names_.value, bias);
  mixer.out = scaled(pack(name + names_.attention_out, bias), sizes_.factors.attention_out);
  if (sizes_.norms_heads()) {
    mixer.query_norm = norm(name + names_.query_norm + ".weight", 1.0F, sizes_.heads);
    mixer.key_norm = norm(name + names_.key_norm + ".weight", 1.0F, sizes_.kv_heads);
  }
  mixer.attention = attention_of(sizes_);
  mixer.attention.stored = parts_.cache;
  mixer.attention.angles = angles_;
  mixer.cache = parts_.layout.offsets[index].back();
  return mixer;
}

FeedForward Loader::feed_forward(int index) const {
  const std::string name = names_.layer(index);
  const bool bias = sizes_.ffn_bias;
  FeedForward made;
  if (sizes_.style == HybridStyle::kNemotronH && sizes_.mixes(index)) {
    made.up = weights_.pack({.weight = name + names_.shared_up}, parts_.precision);
    made.down = {weights_.pack({.weight = name + names_.shared_down}, parts_.precision), {}};
    return made;
  }
  const float factor = sizes_.factors.ffn_gate;
  if (sizes_.joined_ffn()) {
    made.gate = scaled(pack_rows(name + names_.ffn_gate, bias, 0, sizes_.ffn), factor);
    made.up = pack_rows(name + names_.ffn_up, bias, sizes_.ffn, sizes_.ffn);
  } else {
    if (sizes_.gates_ffn()) made.gate = scaled(pack(name + names_.ffn_gate, bias), factor);
    made.up = pack(name + names_.ffn_up, bias);
  }
  made.down = scaled(pack(name + names_.ffn_down, bias), sizes_.factors.ffn_out);
  return made;
}

// The choice of experts can depend on small differences of scores, so they are computed precisely.
Weight Loader::scores(const std::string& layer) const {
  const Precision precision = weights_.precise(parts_.precision);
  const int count = sizes_.experts.count;
  std::vector<float> rows = weights_.numbers(layer + names_.router);
  if (!sizes_.routes_shared()) return weights_.pack(rows, count, {}, precision);
  const std::vector<float> shared = weights_.numbers(layer + names_.shared_router);
  rows.insert(rows.end(), shared.begin(), shared.end());
  return weights_.pack(rows, count + 1, {}, precision);
}

// One weight for each expert. If one tensor has all experts, expert e has the `rows` rows from
// first + e * every on. Otherwise each expert has a whole tensor.
std::vector<Weight> Loader::pack_experts(const std::string& layer, const char* name, int64_t first,
                                         int64_t rows, int64_t every) const {
  if (std::string_view(name).find('*') == std::string_view::npos) {
    return weights_.pack_each(
        {.weight = layer + name, .first = first, .rows = rows, .every = every}, parts_.precision);
  }
  std::vector<Weight> packed;
  for (int e = 0; e < sizes_.experts.count; ++e) {
    packed.push_back(weights_.pack({.weight = layer + expert_name(name, e)}, parts_.precision));
  }
  return packed;
}

ExpertLayers Loader::experts(int index) const {
  const std::string layer = names_.layer(index);
  const ExpertSizes& sizes = sizes_.experts;
  const int64_t joined = sizes_.joined_experts() ? sizes.ffn : 0;  // rows of a gate before `up`
  ExpertLayers made = {
      .scores = scores(layer),
      .bias = {},
      .gate = {},
      .up = pack_experts(layer, names_.expert_up, joined, sizes.ffn, sizes.ffn + joined),
      .down = pack_experts(layer, names_.expert_down, 0, sizes_.width, sizes_.width),
      .table = {}};
  if (sizes_.gates_ffn()) {
    made.gate = pack_experts(layer, names_.expert_gate, 0, sizes.ffn, sizes.ffn + joined);
  }
  if (sizes.bias) made.bias = weights_.matrix(layer + names_.router_bias);
  if (sizes_.routes_shared()) add_shared(layer, made);
  made.table = parts_.backend.expert_table(made.experts(sizes_));
  return made;
}

void Loader::add_shared(const std::string& layer, ExpertLayers& made) const {
  const auto add = [&](std::vector<Weight>& to, const char* name) {
    to.push_back(weights_.pack({.weight = layer + name}, parts_.precision));
  };
  add(made.gate, names_.shared_gate);
  add(made.up, names_.shared_up);
  add(made.down, names_.shared_down);
}

Experts ExpertLayers::experts(const HybridSpec& sizes) const {
  const bool is_nemotron = sizes.style == HybridStyle::kNemotronH;
  const bool is_sigmoid = is_nemotron || sizes.style == HybridStyle::kLfm2;
  return {.gate = gate,
          .up = up,
          .down = down,
          .activation = sizes.gates_ffn() ? Activation::kSilu : Activation::kSquaredRelu,
          .router = {.kind = is_sigmoid ? RouterKind::kSigmoid : RouterKind::kSoftmax,
                     .chosen = sizes.experts.chosen,
                     .shared = sizes.routes_shared(),
                     .bias = sizes.experts.bias ? bias.view.f32() : nullptr,
                     .eps = is_nemotron ? 1e-20F : 1e-6F},
          .factor = sizes.experts.factor * sizes.factors.ffn_out,
          .table = table.data()};
}

}  // namespace runnel::hybrid
