#include "models/linear_transformer.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "base/check.h"

namespace runnel {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Owned matrix in the backend's memory.
struct Matrix {
  Buffer buffer;
  View view;
};

Matrix make_matrix(Backend& backend, DType type, int rows, int cols, Memory memory) {
  Matrix matrix;
  matrix.buffer = backend.allocate(std::max<int64_t>(int64_t{rows} * cols * 4, 1), memory);
  matrix.view = {matrix.buffer.data(), type, rows, cols, cols};
  return matrix;
}

struct NormWeights {
  Matrix scale, shift;
  float eps = 0.0F;
  Norm norm() const { return {scale.view, shift.view, eps}; }
};

struct Layer {
  Weight qkv;  // the projections side by side: columns q, k, v and, if there is one, the gate
  Weight out;
  Matrix omega, sigma;  // of a random feature map
  NormWeights norm1;
  Weight linear1;
  Weight linear2;
  NormWeights norm2;
};

// Reads a bundle's tensors into the backend.
class Loader {
 public:
  Loader(const Bundle& bundle, Backend& backend, Precision precision)
      : bundle_(bundle), backend_(backend), precision_(precision) {}

  const std::vector<float>& tensor(const std::string& name) const {
    const auto it = bundle_.tensors.find(name);
    check(it != bundle_.tensors.end(), "load_bundle() has checked the names");
    return it->second;
  }

  Matrix matrix(const std::string& name, int rows, int cols) const {
    const std::vector<float>& from = tensor(name);
    Matrix matrix = make_matrix(backend_, DType::kF32, rows, cols, Memory::kDevice);
    check(from.size() == static_cast<size_t>(rows) * cols, "load_bundle() has checked the shapes");
    backend_.copy(host_span(from), matrix.buffer.span());
    return matrix;
  }

  NormWeights norm(const std::string& name) const {
    const int width = bundle_.spec.width;
    return {matrix(name + ".weight", 1, width), matrix(name + ".bias", 1, width),
            bundle_.spec.norm_eps};
  }

  // One weight whose outputs are those of the named layers, one after the other.
  Weight linear(const std::vector<std::string>& names, int in, Precision precision) const {
    std::vector<float> weight;
    std::vector<float> bias;
    for (const std::string& name : names) {
      const auto& w = tensor(name + ".weight");
      const auto& b = tensor(name + ".bias");
      weight.insert(weight.end(), w.begin(), w.end());
      bias.insert(bias.end(), b.begin(), b.end());
    }
    const int out = static_cast<int>(bias.size());
    return backend_.pack({weight.data(), out, in}, {bias.data(), 1, out}, precision);
  }

  Layer layer(int index) const {
    const Spec& spec = bundle_.spec;
    const std::string name = "transformer.layers." + std::to_string(index);
    const std::string attention = name + ".attention.";
    Layer layer;
    std::vector<std::string> projections = {attention + "query_projection",
                                            attention + "key_projection",
                                            attention + "value_projection"};
    if (spec.gate) projections.push_back(attention + "gate");
    layer.qkv = linear(projections, spec.width, precision_);
    const std::string map = attention + "inner_attention.feature_map.";
    if (is_random(spec.feature_map)) {
      layer.omega = matrix(map + "omega", spec.query_size, spec.features.projections());
    }
    if (spec.normalize) layer.sigma = matrix(map + "sigma", spec.heads, spec.query_size);
    layer.out = linear({attention + "out_projection"}, spec.heads * spec.value_size, precision_);
    layer.norm1 = norm(name + ".norm1");
    layer.linear1 = linear({name + ".linear1"}, spec.width, precision_);
    layer.linear2 = linear({name + ".linear2"}, spec.ffn,
                           index + 1 == spec.layers ? last_precision() : precision_);
    layer.norm2 = norm(name + ".norm2");
    return layer;
  }

  Weight predictor() const { return linear({"predictor"}, bundle_.spec.width, last_precision()); }

  // Of the last products. Nothing behind them evens their rounding out, and logistics are narrow:
  // in bf16 it would cost an image several times the bits that all other rounding does.
  Precision last_precision() const {
    return bundle_.spec.head.kind == HeadKind::kCategorical ? precision_ : Precision::kFp32;
  }

  // The backend only reads from a span that it copies from.
  template <typename T>
  static Span host_span(const std::vector<T>& from) {
    return {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(from.data())),
            static_cast<int64_t>(from.size() * sizeof(T))};
  }

 private:
  const Bundle& bundle_;
  Backend& backend_;
  const Precision precision_;
};

class LinearTransformer final : public Model {
 public:
  LinearTransformer(const Bundle& bundle, Backend& backend, const ModelLimits& limits,
                    Precision precision);

  const Spec& spec() const override { return spec_; }
  const StateLayout& layout() const override { return layout_; }
  ModelLimits limits() const override { return limits_; }

  void set(SlotId slot, const Control& control, bool zero_state) override;
  void copy(SlotId from, SlotId to) override;
  void read(SlotId slot, std::span<std::byte> bytes) override;
  void write(SlotId slot, std::span<const std::byte> bytes) override;
  Ticket submit(std::span<const Row> rows, int steps) override;
  Result<bool> collect(Ticket ticket, std::vector<Emitted>& out) override;

 private:
  // The shape of one step, as stage() has laid it out.
  struct Batch {
    Rows rows{};
    int inputs = 0;
    int sampled = 0;  // rows that want kNext, the first ones
    int scored = 0;   // inputs of kScores rows, right behind
    int steps = 0;
  };

  Network network() const;
  void allocate_activations();
  void stage(std::span<const Row> rows);
  void stage_row(int index, const Row& row);
  // A run of the staged rows on its way through a step, with its part of each activation.
  struct Run {
    Backend& lane;
    Rows rows;
    int first, inputs;  // of the batch's inputs
    int read;           // inputs whose head somebody looks at, the first ones

    View of(const Matrix& matrix) const { return matrix.view.slice(first, inputs); }
  };

  Run run_of(Backend& lane, int begin, int end) const;
  void forward(const Run& run) const;
  void attention(const Run& run, const Layer& layer, int64_t offset) const;
  void feed_forward(const Run& run, const Layer& layer) const;
  void score(const Run& run) const;
  Span state_span(SlotId slot) const {
    return {states_.data() + slot * slot_bytes_, layout_.state_bytes};
  }
  Control& control(SlotId slot) const { return controls_.as<Control>()[slot]; }
  static Span control_span(Control& control) {
    return {reinterpret_cast<std::byte*>(&control), sizeof(Control)};
  }

  const Spec spec_;
  Backend& backend_;
  ModelLimits limits_;
  StateLayout layout_;
  Recurrence recurrence_;

  Matrix value_table_, position_table_;
  Embedding embedding_;
  std::vector<Layer> layers_;
  NormWeights final_norm_;
  Weight predictor_;

  int64_t layer_bytes_ = 0, slot_bytes_ = 0;
  Buffer states_;                     // [slots][layer][head]{S, z}, or as the backend keeps it
  Buffer controls_;                   // Control [slots]
  std::vector<uint8_t> has_pending_;  // [slots]: what the host knows without asking the device

  // Activations at the largest batch.
  Matrix x_, qkv_, features_, attended_, hidden_, projected_, head_, log_probs_;
  // What the host lays out for a step, in memory that the backend can reach.
  Matrix slot_, first_, values_, head_row_, pending_, targets_;
  Buffer emitted_;  // Emitted [steps][rows]

  // The network as one operation of the backend, where it has that.
  Network network_;
  bool generates_ = false;

  Batch batch_;
  Ticket ticket_ = 0;
};

LinearTransformer::LinearTransformer(const Bundle& bundle, Backend& backend,
                                     const ModelLimits& limits, Precision precision)
    : spec_(bundle.spec), backend_(backend), limits_(limits) {
  const Loader loader(bundle, backend, precision);
  recurrence_ = {.map = is_random(spec_.feature_map) ? FeatureMap::kNone : spec_.feature_map,
                 .gated = spec_.gate,
                 .heads = spec_.heads,
                 .dk = spec_.feature_size(),
                 .dv = spec_.value_size,
                 .eps = spec_.attention_eps};
  layer_bytes_ = backend.state_bytes(recurrence_);
  limits_.chunk = backend.chunk();
  const int64_t state_bytes = layer_bytes_ * spec_.layers;
  layout_ = {.state_bytes = state_bytes,
             .fixed_bytes = state_bytes + static_cast<int64_t>(sizeof(Control)),
             .numerics = backend.numerics(precision) + "/state-fp32"};
  value_table_ = loader.matrix("value_embedding.weight", spec_.vocabulary, spec_.value_width);
  if (spec_.position == PositionKind::kTable) {
    position_table_ = loader.matrix("pos_embedding.pe", static_cast<int>(spec_.positions),
                                    spec_.position_width());
  }
  embedding_ = {value_table_.view, position_table_.view, spec_.position, spec_.combine,
                spec_.position_width()};
  for (int i = 0; i < spec_.layers; ++i) layers_.push_back(loader.layer(i));
  if (spec_.final_norm) final_norm_ = loader.norm("transformer.norm");
  predictor_ = loader.predictor();

  slot_bytes_ = aligned(state_bytes);
  states_ = backend.allocate(slot_bytes_ * limits.slots, Memory::kDevice);
  controls_ =
      backend.allocate(static_cast<int64_t>(sizeof(Control)) * limits.slots, Memory::kDevice);
  has_pending_.resize(limits.slots);
  const std::vector<Control> fresh(limits.slots);
  backend.copy(Loader::host_span(fresh), controls_.span());
  allocate_activations();
  network_ = network();
  generates_ = backend.generates(network_);
}

Network LinearTransformer::network() const {
  Network network;
  network.embedding = embedding_;
  network.width = spec_.width;
  for (const Layer& layer : layers_) {
    network.layers.push_back({&layer.qkv, &layer.out, layer.norm1.norm(), &layer.linear1,
                              &layer.linear2, layer.norm2.norm()});
  }
  network.recurrence = recurrence_;
  network.activation = spec_.activation;
  if (spec_.final_norm) network.final_norm = final_norm_.norm();
  network.predictor = &predictor_;
  network.head = spec_.head;
  network.states = {states_.data(), slot_bytes_, 0};
  network.layer_bytes = layer_bytes_;
  return network;
}

void LinearTransformer::allocate_activations() {
  const int inputs = limits_.values;
  const auto device = [&](int cols) {
    return make_matrix(backend_, DType::kF32, inputs, cols, Memory::kDevice);
  };
  const auto host = [&](int count) {
    return make_matrix(backend_, DType::kI32, 1, count, Memory::kHost);
  };
  x_ = device(spec_.width);
  projected_ = device(spec_.width);
  qkv_ = device(spec_.heads * (2 * spec_.query_size + spec_.value_size + (spec_.gate ? 1 : 0)));
  if (is_random(spec_.feature_map)) features_ = device(2 * spec_.heads * spec_.feature_size());
  attended_ = device(spec_.heads * spec_.value_size);
  hidden_ = device(spec_.ffn);
  head_ = device(spec_.head.width());
  log_probs_ = make_matrix(backend_, DType::kF32, 1, inputs, Memory::kHost);
  slot_ = host(limits_.rows);
  first_ = host(limits_.rows + 1);
  head_row_ = host(limits_.rows);
  pending_ = host(limits_.rows);
  values_ = host(inputs);
  targets_ = host(inputs);
  emitted_ = backend_.allocate(
      int64_t{limits_.steps} * limits_.rows * static_cast<int64_t>(sizeof(Emitted)), Memory::kHost);
}

void LinearTransformer::set(SlotId slot, const Control& control, bool zero_state) {
  check(slot >= 0 && slot < limits_.slots, "the slot exists");
  Control held = control;
  backend_.copy(control_span(held), control_span(this->control(slot)));
  if (zero_state) backend_.zero(state_span(slot));
  has_pending_[slot] = control.pending != kNoValue;
}

void LinearTransformer::copy(SlotId from, SlotId to) {
  check(from != to, "a state is not copied to itself");
  backend_.copy(state_span(from), state_span(to));
  backend_.copy(control_span(control(from)), control_span(control(to)));
  has_pending_[to] = has_pending_[from];
}

void LinearTransformer::read(SlotId slot, std::span<std::byte> bytes) {
  check(static_cast<int64_t>(bytes.size()) == layout_.fixed_bytes, "the bytes of one slot");
  const int64_t state = layout_.state_bytes;
  backend_.copy(state_span(slot), {bytes.data(), state});
  backend_.copy(control_span(control(slot)),
                {bytes.data() + state, static_cast<int64_t>(sizeof(Control))});
}

void LinearTransformer::write(SlotId slot, std::span<const std::byte> bytes) {
  check(static_cast<int64_t>(bytes.size()) == layout_.fixed_bytes, "the bytes of one slot");
  const int64_t state = layout_.state_bytes;
  backend_.copy({const_cast<std::byte*>(bytes.data()), state}, state_span(slot));
  Control held;
  std::memcpy(&held, bytes.data() + state, sizeof(held));
  set(slot, held, false);
}

void LinearTransformer::stage_row(int index, const Row& row) {
  const int pending = has_pending_[row.slot];
  int32_t* values = values_.view.i32();
  const int known = static_cast<int>(row.values.size()) + pending;
  check(known > 0, "a row has an input");
  const int inputs = row.want == Want::kNext ? 1 : known - 1;
  check(batch_.inputs + inputs <= limits_.values, "the batch is within limits().values");
  slot_.view.i32()[index] = row.slot;
  first_.view.i32()[index] = batch_.inputs;
  const bool samples = row.want == Want::kNext;
  head_row_.view.i32()[index] = samples ? batch_.inputs : -1;
  pending_.view.i32()[index] = samples ? kNoValue : row.values.back();
  // Input i is known value i; behind it comes known value i + 1, which a score is about.
  const auto value = [&](int i) {
    if (pending == 1 && i == 0) return kNoValue;
    return row.values[i - pending];
  };
  for (int i = 0; i < inputs; ++i) {
    values[batch_.inputs + i] = value(i);
    if (row.want == Want::kScores) targets_.view.i32()[batch_.scored + i] = value(i + 1);
  }
  batch_.inputs += inputs;
  has_pending_[row.slot] = 1;
  if (samples) ++batch_.sampled;
  if (row.want == Want::kScores) batch_.scored += inputs;
}

void LinearTransformer::stage(std::span<const Row> rows) {
  check(rows.size() <= static_cast<size_t>(limits_.rows), "the batch is within limits().rows");
  batch_ = {};
  batch_.rows = {slot_.view.i32(), first_.view.i32(), static_cast<int>(rows.size())};
  for (size_t i = 0; i < rows.size(); ++i) {
    check(i == 0 || rows[i - 1].want <= rows[i].want, "rows stand in the order of Want");
    check(rows[i].want != Want::kNext || rows[i].values.empty(),
          "a row that samples gives no values");
    stage_row(static_cast<int>(i), rows[i]);
  }
  first_.view.i32()[rows.size()] = batch_.inputs;
}

LinearTransformer::Run LinearTransformer::run_of(Backend& lane, int begin, int end) const {
  const Rows rows = batch_.rows.slice(begin, end);
  const int first = rows.first[0];
  const int read = std::clamp(batch_.sampled + batch_.scored - first, 0, rows.inputs());
  return {lane, rows, first, rows.inputs(), read};
}

void LinearTransformer::attention(const Run& run, const Layer& layer, int64_t offset) const {
  const View x = run.of(x_);
  const View qkv = run.of(qkv_);
  const View attended = run.of(attended_);
  run.lane.matmul(x, layer.qkv, Activation::kNone, qkv);
  const int values = 2 * spec_.heads * spec_.query_size;  // the column where they begin
  View mapped = qkv.columns(0, values);
  if (is_random(spec_.feature_map)) {
    RandomFeatures features = spec_.features;
    features.omega = layer.omega.view;
    features.sigma = layer.sigma.view;
    run.lane.features(mapped, features, run.of(features_));
    mapped = run.of(features_);
  }
  const int queries = spec_.heads * spec_.feature_size();
  RecurrenceInputs inputs = {.q = mapped.columns(0, queries),
                             .k = mapped.columns(queries, queries),
                             .v = qkv.columns(values, attended.cols),
                             .gate = {}};
  if (spec_.gate) inputs.gate = qkv.columns(values + attended.cols, spec_.heads);
  run.lane.recur(run.rows, controls_.as<Control>(), recurrence_, inputs,
                 {states_.data(), slot_bytes_, offset}, attended);
  run.lane.matmul(attended, layer.out, Activation::kNone, run.of(projected_));
  run.lane.norm(run.of(projected_), x, layer.norm1.norm(), x);
}

void LinearTransformer::feed_forward(const Run& run, const Layer& layer) const {
  const View x = run.of(x_);
  run.lane.matmul(x, layer.linear1, spec_.activation, run.of(hidden_));
  run.lane.matmul(run.of(hidden_), layer.linear2, Activation::kNone, run.of(projected_));
  run.lane.norm(run.of(projected_), x, layer.norm2.norm(), x);
}

// One step over a run of rows: the encoder of fast-transformers, post-norm, one value a row and
// position, and the head where somebody looks at it.
void LinearTransformer::forward(const Run& run) const {
  View values = values_.view.columns(run.first, run.inputs);
  run.lane.embed(run.rows, values, controls_.as<Control>(), embedding_, run.of(x_));
  for (int i = 0; i < spec_.layers; ++i) {
    attention(run, layers_[i], i * layer_bytes_);
    feed_forward(run, layers_[i]);
  }
  if (run.read == 0) return;
  const View read = run.of(x_).top(run.read);
  if (spec_.final_norm) run.lane.norm(read, View{}, final_norm_.norm(), read);
  run.lane.matmul(read, predictor_, Activation::kNone, run.of(head_).top(run.read));
}

// Scored inputs stand behind the sampled ones.
void LinearTransformer::score(const Run& run) const {
  const int begin = std::max(run.first, batch_.sampled);
  const int count = run.first + run.read - begin;
  if (count <= 0) return;
  const int target = begin - batch_.sampled;
  run.lane.score(spec_.head, head_.view.slice(begin, count), targets_.view.columns(target, count),
                 log_probs_.view.columns(target, count));
}

Ticket LinearTransformer::submit(std::span<const Row> rows, int steps) {
  check(steps >= 1 && steps <= limits_.steps, "the steps are within limits().steps");
  stage(rows);
  batch_.steps = steps;
  check(steps == 1 || batch_.sampled == batch_.rows.count,
        "several steps are for rows that sample");
  const View head = head_.view.top(batch_.sampled + batch_.scored);
  const auto pass = [&](Backend& lane, int begin, int end) {
    const Run run = run_of(lane, begin, end);
    if (generates_ && batch_.sampled == batch_.rows.count) {
      lane.generate(run.rows, network_, controls_.as<Control>(), emitted_.as<Emitted>() + begin,
                    limits_.rows, batch_.steps);
      return;
    }
    for (int step = 0; step < batch_.steps; ++step) {
      if (run.inputs > 0) forward(run);
      score(run);
      lane.sample(run.rows, {head_row_.view.i32() + begin, pending_.view.i32() + begin}, spec_.head,
                  head, controls_.as<Control>(),
                  emitted_.as<Emitted>() + static_cast<int64_t>(step) * limits_.rows + begin);
    }
  };
  // By reference: a std::function of a larger pass would allocate.
  backend_.run(batch_.rows, spec_.parameters(), std::cref(pass));
  return ++ticket_;
}

Result<bool> LinearTransformer::collect(Ticket ticket, std::vector<Emitted>& out) {
  check(ticket == ticket_, "tickets are collected in order");
  const Result<bool> done = backend_.done();
  if (!done.ok() || !*done) return done;
  for (int step = 0; step < batch_.steps; ++step) {
    const Emitted* emitted = emitted_.as<Emitted>() + static_cast<int64_t>(step) * limits_.rows;
    for (int row = 0; row < batch_.sampled; ++row) {
      if (emitted[row].row < 0) continue;
      out.push_back(emitted[row]);
      out.back().row = row;
    }
  }
  const int32_t* first = batch_.rows.first;
  for (int row = batch_.sampled, i = 0; i < batch_.scored; ++row) {
    for (; i < first[row + 1] - batch_.sampled; ++i) {
      Emitted scored;
      scored.row = row;
      scored.value = targets_.view.i32()[i];
      scored.log_prob = log_probs_.view.f32()[i];
      out.push_back(scored);
    }
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Model>> make_linear_transformer(const Bundle& bundle, Backend& backend,
                                                       const ModelLimits& limits,
                                                       Precision precision) {
  // Decoding rows come first; a chunk must fit behind them, or a prompt would wait for ever.
  if (const int chunk = backend.chunk(); chunk > 1 && limits.values < limits.rows + chunk) {
    return invalid_argument(
        "prompts in chunks of " + std::to_string(chunk) + " need batch_values of at least " +
        std::to_string(limits.rows + chunk) + " (batch_rows + " + std::to_string(chunk) +
        "), which is " + std::to_string(limits.values) + ": raise it, or take prompts in steps");
  }
  try {
    return std::unique_ptr<Model>(
        std::make_unique<LinearTransformer>(bundle, backend, limits, precision));
  } catch (const std::bad_alloc&) {
    const int64_t mib =
        (bundle.spec.state_bytes() * limits.slots + bundle.spec.parameters() * 4) >> 20;
    return Status(Code::kResourceExhausted,
                  bundle.directory + ": not enough memory for " + std::to_string(limits.slots) +
                      " states and the weights (about " + std::to_string(mib) +
                      " MiB); lower the number of sessions");
  }
}

}  // namespace runnel
