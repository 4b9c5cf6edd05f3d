#include "models/hybrid/network.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fields.h"
#include "models/hybrid/layers.h"

namespace runnel {
namespace {

using hybrid::AttentionMixer;
using hybrid::ExpertLayers;
using hybrid::FeedForward;
using hybrid::Layer;
using hybrid::RecurrentMixer;
using hybrid::Scaled;

std::string table_of(const HybridSpec& sizes) { return names_of(sizes).table + ".weight"; }

constexpr Norm kNoNorm = {{}, {}, 0.0F, NormKind::kNone};

// One row of factors, used for all `rows` rows; data is null if there are no factors.
View spread(const Matrix& factors, int rows) {
  View view = factors.view;
  view.rows = rows;
  view.stride = 0;
  return view;
}

class Hybrid final : public LayeredNetwork {
 public:
  Hybrid(const HybridSpec& sizes, const NetworkParts& parts);

 private:
  void pass(const Run& run) const override;
  Norm norm(const Matrix& scale, int groups = 1) const {
    return {scale.view, {}, sizes_.norm_eps, NormKind::kRms, groups};
  }
  void allocate(const NetworkParts& parts);
  // Adds y, multiplied by the weight, to x.
  void add(const Run& run, View y, const Scaled& product) const;
  void project(const Run& run, const Layer& layer) const;
  void mix(const Run& run, const Layer& layer) const;
  void mamba2(const Run& run, const RecurrentMixer& mixer) const;
  void delta(const Run& run, const RecurrentMixer& mixer) const;
  void convolution(const Run& run, const RecurrentMixer& mixer) const;
  void attend(const Run& run, const AttentionMixer& mixer) const;
  void feed_forward(const Run& run, const Layer& layer) const;
  void add_dense(const Run& run, const FeedForward& layer) const;
  void add_experts(const Run& run, const ExpertLayers& layer) const;

  const HybridSpec sizes_;
  const StateLayout layout_;

  Matrix angles_;
  std::vector<Layer> layers_;

  // Activations for the largest batch: the input of the recurrent mixer and of the feed-forward,
  // the input of attention, and everything between.
  Matrix u_, attended_, projected_, z_, rate_, dt_, y_, q_, k_, v_, hidden_, up_;
  Matrix scores_, used_, shares_, expert_wide_, expert_hidden_;  // of experts
};

Hybrid::Hybrid(const HybridSpec& sizes, const NetworkParts& parts)
    : LayeredNetwork(parts, table_of(sizes), sizes.width), sizes_(sizes), layout_(parts.layout) {
  if (sizes.has_attention() && sizes.rotated > 0) {
    const WeightReader weights(parts.bundle, parts.backend);
    const int64_t positions = parts.layout.positions;
    angles_ =
        weights.matrix_of(hybrid::rotary_angles(positions, sizes.rotated, shortest(sizes.theta)),
                          static_cast<int>(positions));
  }
  const hybrid::Loader loader(sizes, parts, angles_.view);
  embedding_.scale = sizes.factors.embedding;
  for (int i = 0; i < sizes.depth(); ++i) layers_.push_back(loader.layer(i));
  Matrix scale = loader.norm(loader.names().final_norm + ".weight", sizes.factors.head);
  read_head(parts, {std::move(scale), {}, sizes.norm_eps, 1, NormKind::kRms},
            sizes.tied ? table_of(sizes) : std::string(loader.names().head) + ".weight");
  allocate(parts);
}

void Hybrid::allocate(const NetworkParts& parts) {
  const auto device = [&](int cols) { return activations(parts, cols); };
  u_ = device(sizes_.width);
  const bool has_states = sizes_.has_recurrence() && sizes_.style != HybridStyle::kLfm2;
  y_ = device(
      std::max(has_states ? sizes_.inner() : 1, sizes_.has_attention() ? sizes_.attended() : 1));
  int ffn = 0;
  for (int i = 0; i < sizes_.depth(); ++i) ffn = std::max(ffn, sizes_.dense_ffn(i));
  if (ffn > 0) hidden_ = device(ffn);
  if (ffn > 0 && sizes_.factors.ffn_gate != 1.0F) up_ = device(ffn);
  if (sizes_.has_recurrence()) {
    projected_ = device(sizes_.is_mamba2() ? sizes_.projected() : sizes_.channels());
  }
  if (has_states && sizes_.style == HybridStyle::kQwen35) {
    z_ = device(sizes_.inner());
    rate_ = device(sizes_.recurrent_heads);
    dt_ = device(sizes_.recurrent_heads);
  }
  if (const ExpertSizes& experts = sizes_.experts; experts.count > 0) {
    const int shared = sizes_.routes_shared() ? 1 : 0;
    const int used = experts.chosen + shared;
    scores_ = device(experts.count + shared);
    used_ = make_matrix(parts.backend, DType::kI32, parts.limits.values, used, Memory::kDevice);
    shares_ = device(used);
    expert_wide_ = device(used * sizes_.width);
    expert_hidden_ = device(used * std::max(experts.ffn, shared * experts.shared));
  }
  if (!sizes_.has_attention()) return;
  attended_ = device(sizes_.width);
  q_ = device(sizes_.attended());
  k_ = device(sizes_.kv_heads * sizes_.head_size);
  v_ = device(sizes_.kv_heads * sizes_.head_size);
}

void Hybrid::add(const Run& run, View y, const Scaled& product) const {
  const View x = stream(run);
  run.lane.matmul(y, product.weight, {Activation::kNone, spread(product.factors, x.rows), x}, x);
}

// Runs the products of the mixers' inputs, of both mixers at once if a layer has two.
void Hybrid::project(const Run& run, const Layer& layer) const {
  Products products;
  if (layer.recurrent && sizes_.is_mamba2()) {
    const Scaled& in = layer.recurrent->in;
    const View projected = run.of(projected_.view);
    products.add({run.of(u_.view),
                  &in.weight,
                  {Activation::kNone, spread(in.factors, projected.rows)},
                  projected});
  } else if (layer.recurrent && sizes_.style == HybridStyle::kQwen35) {
    const RecurrentMixer& mixer = *layer.recurrent;
    const View u = run.of(u_.view);
    products.add({u, &mixer.in.weight, Activation::kNone, run.of(projected_.view)});
    products.add({u, &mixer.z, Activation::kNone, run.of(z_.view)});
    products.add({u, &mixer.rate, Activation::kNone, run.of(rate_.view)});
    products.add({u, &mixer.dt, Activation::kNone, run.of(dt_.view)});
  }
  if (layer.attention) {
    const AttentionMixer& mixer = *layer.attention;
    const View u = run.of(attended_.view);
    products.add({u, &mixer.q, Activation::kNone, run.of(q_.view)});
    products.add({u,
                  &mixer.k.weight,
                  {Activation::kNone, spread(mixer.k.factors, u.rows)},
                  run.of(k_.view)});
    products.add({u, &mixer.v, Activation::kNone, run.of(v_.view)});
  }
  products.compute(run.lane);
}

// Both mixers of a layer read its input before either adds to it.
void Hybrid::mix(const Run& run, const Layer& layer) const {
  const View x = stream(run);
  if (layer.recurrent) run.lane.norm(x, View{}, norm(layer.recurrent_norm), run.of(u_.view));
  if (layer.attention) {
    run.lane.norm(x, View{}, norm(layer.attention_norm), run.of(attended_.view));
  }
  project(run, layer);
  if (layer.recurrent && sizes_.is_mamba2()) {
    mamba2(run, *layer.recurrent);
  } else if (layer.recurrent && sizes_.style == HybridStyle::kQwen35) {
    delta(run, *layer.recurrent);
  } else if (layer.recurrent) {
    convolution(run, *layer.recurrent);
  }
  if (layer.attention) attend(run, *layer.attention);
}

void Hybrid::mamba2(const Run& run, const RecurrentMixer& mixer) const {
  Backend& lane = run.lane;
  const View projected = run.of(projected_.view);
  const int inner = sizes_.inner();
  const int keys = sizes_.keys();
  const View z = projected.columns(0, inner);
  const View xbc = projected.columns(inner, sizes_.channels());
  lane.convolve(run.rows, xbc, mixer.convolution, run.states_at(mixer.inputs), xbc);
  const RecurrenceInputs inputs = {
      .q = xbc.columns(inner + keys, keys),
      .k = xbc.columns(inner, keys),
      .v = xbc.columns(0, inner),
      .decay = projected.columns(inner + xbc.cols, sizes_.recurrent_heads)};
  const View y = run.of(y_.view).columns(0, inner);
  lane.recur(run.rows, run.control, mixer.recurrence, inputs, run.states_at(mixer.state), y);
  const bool none = sizes_.gated_norm == GatedNormKind::kNone;
  lane.gated_norm(y, none ? kNoNorm : norm(mixer.norm, sizes_.key_heads),
                  {.by = z, .before = sizes_.gated_norm == GatedNormKind::kGateFirst}, y);
  add(run, y, mixer.out);
}

void Hybrid::delta(const Run& run, const RecurrentMixer& mixer) const {
  Backend& lane = run.lane;
  const View qkv = run.of(projected_.view);
  const View z = run.of(z_.view);
  const View rate = run.of(rate_.view);
  const View dt = run.of(dt_.view);
  lane.convolve(run.rows, qkv, mixer.convolution, run.states_at(mixer.inputs), qkv);
  const int keys = sizes_.keys();
  const RecurrenceInputs inputs = {.q = qkv.columns(0, keys),
                                   .k = qkv.columns(keys, keys),
                                   .v = qkv.columns(2 * keys, sizes_.inner()),
                                   .decay = dt,
                                   .rate = rate};
  const View y = run.of(y_.view).columns(0, sizes_.inner());
  lane.recur(run.rows, run.control, mixer.recurrence, inputs, run.states_at(mixer.state), y);
  lane.gated_norm(y, norm(mixer.norm, sizes_.recurrent_heads), {.by = z}, y);
  add(run, y, mixer.out);
}

// C * conv(B * x).
void Hybrid::convolution(const Run& run, const RecurrentMixer& mixer) const {
  Backend& lane = run.lane;
  const View u = run.of(u_.view);
  const View x = run.of(projected_.view);
  const Product gated = {u, &mixer.before, Activation::kNone, x, &mixer.in.weight};
  lane.matmuls({&gated, 1});
  lane.convolve(run.rows, x, mixer.convolution, run.states_at(mixer.inputs), x);
  lane.matmul(u, mixer.after, {Activation::kNone, x}, x);
  add(run, x, mixer.out);
}

void Hybrid::attend(const Run& run, const AttentionMixer& mixer) const {
  Backend& lane = run.lane;
  const View u = run.of(attended_.view);
  const View q = run.of(q_.view);
  const View k = run.of(k_.view);
  const View v = run.of(v_.view);
  if (sizes_.norms_heads()) {
    lane.norm(q, View{}, norm(mixer.query_norm, sizes_.heads), q);
    lane.norm(k, View{}, norm(mixer.key_norm, sizes_.kv_heads), k);
  }
  const View y = run.of(y_.view).columns(0, sizes_.attended());
  lane.attend(run.rows, run.control, mixer.attention, {q, k, v}, run.cache_at(mixer.cache, layout_),
              y);
  if (sizes_.gates_attention()) lane.matmul(u, mixer.gate, {Activation::kSigmoid, y}, y);
  add(run, y, mixer.out);
}

// down(silu(gate(u)) * up(u)), or down(relu(up(u))^2). A factor of the gate is applied before silu,
// which a product's epilogue cannot do. Then gated_norm(), without a norm, computes silu.
void Hybrid::add_dense(const Run& run, const FeedForward& layer) const {
  Backend& lane = run.lane;
  const View u = run.of(u_.view);
  View hidden = run.of(hidden_.view).columns(0, layer.up.out);
  if (!sizes_.gates_ffn()) {
    lane.matmul(u, layer.up, Activation::kSquaredRelu, hidden);
  } else if (layer.gate.factors.view.data == nullptr) {
    const Product gated = {u, &layer.gate.weight, Activation::kSilu, hidden, &layer.up};
    lane.matmuls({&gated, 1});
  } else {
    const View gate = hidden;
    hidden = run.of(up_.view);
    const Product both[] = {
        {u, &layer.gate.weight, {Activation::kNone, spread(layer.gate.factors, u.rows)}, gate},
        {u, &layer.up, Activation::kNone, hidden}};
    lane.matmuls(both);
    lane.gated_norm(hidden, kNoNorm, {.by = gate}, hidden);
  }
  add(run, hidden, layer.down);
}

void Hybrid::add_experts(const Run& run, const ExpertLayers& layer) const {
  const View u = run.of(u_.view);
  const View scores = run.of(scores_.view);
  run.lane.matmul(u, layer.scores, Activation::kNone, scores);
  const ExpertRoom room = {run.of(used_.view), run.of(shares_.view), run.of(expert_wide_.view),
                           run.of(expert_hidden_.view)};
  run.lane.experts(u, scores, layer.experts(sizes_), room, stream(run));
}

void Hybrid::feed_forward(const Run& run, const Layer& layer) const {
  run.lane.norm(stream(run), View{}, norm(layer.ffn_norm), run.of(u_.view));
  if (layer.experts) add_experts(run, *layer.experts);
  if (layer.feed_forward) add_dense(run, *layer.feed_forward);
}

void Hybrid::pass(const Run& run) const {
  for (const Layer& layer : layers_) {
    mix(run, layer);
    if (layer.feed_forward || layer.experts) feed_forward(run, layer);
  }
}

}  // namespace

std::unique_ptr<Network> make_network(const HybridSpec& sizes, const NetworkParts& parts) {
  return std::make_unique<Hybrid>(sizes, parts);
}

}  // namespace runnel
