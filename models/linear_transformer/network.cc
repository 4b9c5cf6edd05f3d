#include "models/linear_transformer/network.h"

#include <string>
#include <utility>
#include <vector>

#include "kernels/fused_network.h"
#include "kernels/sinusoids.h"
#include "models/matrix.h"
#include "models/weights.h"

namespace runnel {
namespace {

struct NormWeights {
  Matrix scale, shift;
  float eps = 0.0F;
  Norm norm() const { return {scale.view, shift.view, eps}; }
};

struct Layer {
  Weight qkv;  // the projections concatenated: columns q, k, v and, if there is one, the gate
  Weight out;
  Matrix omega, sigma;  // of a random feature map
  NormWeights norm1;
  Weight linear1;
  Weight linear2;
  NormWeights norm2;
  int64_t state = 0;  // bytes from the start of a slot
};

// Reads the layers of a bundle.
class Loader {
 public:
  Loader(const LinearTransformerSpec& sizes, HeadKind head, const WeightReader& weights,
         Precision precision)
      : sizes_(sizes), head_(head), weights_(weights), precision_(precision) {}

  NormWeights norm(const std::string& name) const {
    return {weights_.matrix(name + ".weight"), weights_.matrix(name + ".bias"), sizes_.norm_eps};
  }

  Layer layer(int index) const {
    const std::string name = "transformer.layers." + std::to_string(index);
    const std::string attention = name + ".attention.";
    Layer layer;
    std::vector<std::string> projections = {attention + "query_projection",
                                            attention + "key_projection",
                                            attention + "value_projection"};
    if (sizes_.gate) projections.push_back(attention + "gate");
    layer.qkv = weights_.linear(projections, precision_);
    const std::string map = attention + "inner_attention.feature_map.";
    if (is_random(sizes_.feature_map)) layer.omega = weights_.matrix(map + "omega");
    if (sizes_.normalize) layer.sigma = weights_.matrix(map + "sigma");
    layer.out = weights_.linear({attention + "out_projection"}, precision_);
    layer.norm1 = norm(name + ".norm1");
    layer.linear1 = weights_.linear({name + ".linear1"}, precision_);
    layer.linear2 = weights_.linear({name + ".linear2"},
                                    index + 1 == sizes_.layers ? last_precision() : precision_);
    layer.norm2 = norm(name + ".norm2");
    return layer;
  }

  Weight predictor() const { return weights_.linear({"predictor"}, last_precision()); }

 private:
  // The precision of the last products. No later sum averages out their rounding errors, and a
  // mixture's logistics are narrow. In bf16, these products alone would cost an image several times
  // as many bits as all other rounding.
  Precision last_precision() const {
    return head_ == HeadKind::kCategorical ? precision_ : weights_.precise(precision_);
  }

  const LinearTransformerSpec& sizes_;
  const HeadKind head_;
  const WeightReader& weights_;
  const Precision precision_;
};

// Whether the sinusoids are few enough to be computed while loading. Reading them from a table is
// many times as fast as computing them in each step.
bool lie_in_a_table(const LinearTransformerSpec& sizes, int64_t positions) {
  constexpr int64_t kMostNumbers = int64_t{1} << 20;
  return sizes.position == PositionKind::kSinusoidal && positions > 0 &&
         positions <= kMostNumbers && positions * sizes.position_width() <= kMostNumbers;
}

std::vector<float> sinusoid_table(int64_t positions, int width) {
  std::vector<float> table;
  table.reserve(static_cast<size_t>(positions * width));
  for (int64_t position = 0; position < positions; ++position) {
    for (int column = 0; column < width; column += 2) {
      const Sinusoids at = sinusoids(position, column / 2, width);
      table.push_back(at.sine);
      if (column + 1 < width) table.push_back(at.cosine);
    }
  }
  return table;
}

class LinearTransformer final : public Network {
 public:
  LinearTransformer(const LinearTransformerSpec& sizes, const NetworkParts& parts);

  void forward(const Run& run) const override;
  bool fused() const override { return fused_; }
  void steps(const Run& run, SampledTo to, int64_t stride, int steps) const override;

 private:
  void allocate_activations(Backend& backend, int inputs);
  FusedNetwork fused_network(const Head& head) const;
  void attention(const Run& run, const Layer& layer) const;
  void feed_forward(const Run& run, const Layer& layer) const;

  const LinearTransformerSpec sizes_;
  const Recurrence recurrence_;
  Attention attention_;  // with softmax, replaces the recurrence
  const StateLayout layout_;

  Matrix value_table_, position_table_;
  Embedding embedding_;
  std::vector<Layer> layers_;
  NormWeights final_norm_;
  Weight predictor_;

  // Activations for the largest batch.
  Matrix x_, qkv_, features_, attended_, hidden_, projected_;

  // The whole network as one kernel of the device, if it has one for these sizes.
  FusedNetwork network_;
  bool fused_ = false;
};

LinearTransformer::LinearTransformer(const LinearTransformerSpec& sizes, const NetworkParts& parts)
    : sizes_(sizes),
      recurrence_(recurrence_of(sizes)),
      attention_(attention_of(sizes)),
      layout_(parts.layout) {
  attention_.stored = parts.cache;
  const Spec& spec = parts.bundle.spec;
  const WeightReader weights(parts.bundle, parts.backend);
  const Loader loader(sizes, spec.head.kind, weights, parts.precision);
  PositionKind position = sizes.position;
  if (position == PositionKind::kTable) position_table_ = weights.table("pos_embedding.pe");
  if (lie_in_a_table(sizes, spec.positions)) {
    position_table_ = weights.matrix_of(sinusoid_table(spec.positions, sizes.position_width()),
                                        static_cast<int>(spec.positions));
    position = PositionKind::kTable;
  }
  embedding_ = {{}, position_table_.view, position, sizes.combine, sizes.position_width()};
  value_table_ = weights.vectors("value_embedding.weight", embedding_);
  for (int i = 0; i < sizes.layers; ++i) {
    layers_.push_back(loader.layer(i));
    layers_.back().state = parts.layout.offsets[i][0];
  }
  if (sizes.final_norm) final_norm_ = loader.norm("transformer.norm");
  predictor_ = loader.predictor();
  allocate_activations(parts.backend, parts.limits.values);
  network_ = fused_network(spec.head);
  if (sizes.layers > 1) network_.layer_bytes = layers_[1].state - layers_[0].state;
  FusedSteps* const fused = parts.backend.fused();
  fused_ = fused != nullptr && !sizes.softmax && fused->takes(network_);
}

void LinearTransformer::allocate_activations(Backend& backend, int inputs) {
  const auto device = [&](int cols) {
    return make_matrix(backend, DType::kF32, inputs, cols, Memory::kDevice);
  };
  x_ = device(sizes_.width);
  projected_ = device(sizes_.width);
  qkv_ = device(sizes_.heads * (2 * sizes_.query_size + sizes_.value_size + (sizes_.gate ? 1 : 0)));
  if (is_random(sizes_.feature_map)) features_ = device(2 * sizes_.heads * sizes_.feature_size());
  attended_ = device(sizes_.heads * sizes_.value_size);
  hidden_ = device(sizes_.ffn);
}

FusedNetwork LinearTransformer::fused_network(const Head& head) const {
  FusedNetwork network;
  network.embedding = embedding_;
  network.width = sizes_.width;
  for (const Layer& layer : layers_) {
    network.layers.push_back({&layer.qkv, &layer.out, layer.norm1.norm(), &layer.linear1,
                              &layer.linear2, layer.norm2.norm()});
  }
  network.recurrence = recurrence_;
  network.activation = sizes_.activation;
  if (sizes_.final_norm) network.final_norm = final_norm_.norm();
  network.predictor = &predictor_;
  network.head = head;
  return network;
}

void LinearTransformer::steps(const Run& run, SampledTo to, int64_t stride, int steps) const {
  run.lane.fused()->generate(run.rows, network_, run.states, run.control, run.recent, to, stride,
                             steps);
}

void LinearTransformer::attention(const Run& run, const Layer& layer) const {
  const View x = run.of(x_.view);
  const View qkv = run.of(qkv_.view);
  const View attended = run.of(attended_.view);
  run.lane.matmul(x, layer.qkv, Activation::kNone, qkv);
  const int values = 2 * sizes_.heads * sizes_.query_size;  // the column where the values begin
  View mapped = qkv.columns(0, values);
  if (is_random(sizes_.feature_map)) {
    RandomFeatures features = sizes_.features;
    features.omega = layer.omega.view;
    features.sigma = layer.sigma.view;
    run.lane.features(mapped, features, run.of(features_.view));
    mapped = run.of(features_.view);
  }
  const int queries = sizes_.heads * sizes_.feature_size();
  const View q = mapped.columns(0, queries);
  const View k = mapped.columns(queries, queries);
  const View v = qkv.columns(values, attended.cols);
  if (sizes_.softmax) {
    run.lane.attend(run.rows, run.control, attention_, {q, k, v},
                    run.cache_at(layer.state, layout_), attended);
  } else {
    RecurrenceInputs inputs = {.q = q, .k = k, .v = v, .gate = {}};
    if (sizes_.gate) inputs.gate = qkv.columns(values + attended.cols, sizes_.heads);
    run.lane.recur(run.rows, run.control, recurrence_, inputs, run.states_at(layer.state),
                   attended);
  }
  run.lane.matmul(attended, layer.out, Activation::kNone, run.of(projected_.view));
  run.lane.norm(run.of(projected_.view), x, layer.norm1.norm(), x);
}

void LinearTransformer::feed_forward(const Run& run, const Layer& layer) const {
  const View x = run.of(x_.view);
  run.lane.matmul(x, layer.linear1, sizes_.activation, run.of(hidden_.view));
  run.lane.matmul(run.of(hidden_.view), layer.linear2, Activation::kNone, run.of(projected_.view));
  run.lane.norm(run.of(projected_.view), x, layer.norm2.norm(), x);
}

// Runs one step over a run of rows: the encoder of fast-transformers, post-norm, with one value per
// row and position. The head runs only for rows whose output is read.
void LinearTransformer::forward(const Run& run) const {
  run.lane.embed(run.rows, run.values, run.control, embedding_, run.of(x_.view));
  for (const Layer& layer : layers_) {
    attention(run, layer);
    feed_forward(run, layer);
  }
  if (run.read == 0) return;
  const View read = run.of(x_.view).top(run.read);
  if (sizes_.final_norm) run.lane.norm(read, View{}, final_norm_.norm(), read);
  run.lane.matmul(read, predictor_, Activation::kNone, run.head);
}

}  // namespace

std::unique_ptr<Network> make_network(const LinearTransformerSpec& sizes,
                                      const NetworkParts& parts) {
  return std::make_unique<LinearTransformer>(sizes, parts);
}

}  // namespace runnel
