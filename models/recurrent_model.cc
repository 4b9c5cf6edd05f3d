#include "models/recurrent_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "models/matrix.h"

namespace runnel {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <typename T>
Span bytes_of(T& object) {
  return {reinterpret_cast<std::byte*>(&object), sizeof(T)};
}

class RecurrentModel final : public Model {
 public:
  RecurrentModel(const Spec& spec, Backend& backend, const ModelLimits& limits,
                 const StateLayout& layout, std::unique_ptr<Network> network);

  const Spec& spec() const override { return spec_; }
  const StateLayout& layout() const override { return layout_; }
  ModelLimits limits() const override { return limits_; }
  DeviceKind device() const override { return backend_.device(); }
  bool batch_changes_bits() const override { return backend_.batch_changes_bits(); }

  void set(SlotId slot, const Control& control, bool zero_state) override;
  void penalize(SlotId slot, Penalized penalized) override;
  void copy(SlotId from, SlotId to, int64_t inputs) override;
  void read(SlotId slot, int64_t offset, std::span<std::byte> bytes) override;
  void write(SlotId slot, int64_t offset, std::span<const std::byte> bytes) override;
  void copy_piece(SlotId from, SlotId to, int64_t offset, int64_t bytes) override;
  Ticket submit(std::span<const Row> rows, int steps) override;
  Result<bool> collect(Ticket ticket, std::vector<Emitted>& out) override;

 private:
  // The buffers of a launch, in memory that the backend can reach. The host fills them and reads
  // the results.
  struct Batch {
    Matrix slot, first, values, head_row, pending, targets;
    Matrix log_probs;
    Buffer sampled_values;  // Sampled [steps][rows]
    Buffer top;             // TopLogProb [steps][rows][kMaxTopLogProbs]
    Buffer penalties;       // RowPenalties [rows]; empty if no slot takes penalties
    Buffer biases;          // LogitBias [rows * kMaxLogitBiases]: packed, row 0 first
    // The shape of the batch, as laid out by stage().
    Rows rows{};
    int inputs = 0;
    int sampled = 0;          // rows that want kNext; they come first
    int scored = 0;           // inputs of kScores rows; they come next
    std::vector<int> likely;  // by row: the number of most likely values wanted at each input
    bool wants_likely = false;
    bool penalized = false;  // a row has penalties
    int steps = 0;
  };

  // Finds the most likely values at scored inputs, by sampling from each input as if it were a row
  // of its own.
  struct Likely {
    Matrix slot, first, head_row, pending;
    Buffer controls;        // Control [inputs]: most likely value, all that may be reported
    Buffer sampled_values;  // Sampled [inputs]
    Buffer top;             // TopLogProb [inputs][kMaxTopLogProbs]
  };

  Batch make_batch() const;
  Likely make_likely() const;
  void stage(std::span<const Row> rows, Batch& batch);
  void stage_row(int index, const Row& row, Batch& batch);
  void stage_penalties(std::span<const Row> rows, Batch& batch) const;
  // The penalties of a row; null if none of them changes a logit.
  const Penalties* penalties_of(const Row& row) const {
    if (row.slot >= std::ssize(penalized_)) return nullptr;
    const Penalties* const by = penalized_[row.slot].penalties.get();
    return by != nullptr && by->any() ? by : nullptr;
  }
  void pass(const Batch& batch, Backend& lane, int begin, int end) const;
  Run run_of(const Batch& batch, Backend& lane, int begin, int end) const;
  void score(const Batch& batch, const Run& run) const;
  void find_likely(const Batch& batch, const Run& run, int target, int count) const;
  // Where a step of the batch writes what it samples.
  SampledTo sampled(const Batch& batch, int step) const {
    const SampledTo all = {batch.sampled_values.as<Sampled>(), batch.top.as<TopLogProb>()};
    return all.from(int64_t{step} * limits_.rows);
  }
  Batch& batch_of(Ticket ticket) { return batches_[ticket % batches_.size()]; }
  Span piece_of_state(SlotId slot, int64_t offset, int64_t bytes) const {
    check(slot >= 0 && slot < limits_.slots, "the slot exists");
    const int64_t snapshot = slot - sessions_;
    const int64_t all = snapshot < 0 ? layout_.state_bytes : layout_.fixed_bytes();
    check(offset >= 0 && bytes >= 0 && offset <= all - bytes, "bytes of one state");
    const int64_t begin =
        snapshot < 0 ? slot * slot_bytes_ : sessions_ * slot_bytes_ + snapshot * snapshot_bytes_;
    return {states_.data() + begin + offset, bytes};
  }
  Control& control(SlotId slot) const { return controls_.as<Control>()[slot]; }

  const Spec spec_;
  Backend& backend_;
  ModelLimits limits_;
  const std::unique_ptr<Network> network_;
  const StateLayout layout_;
  const int64_t work_;  // multiply-adds per input

  int64_t slot_bytes_, snapshot_bytes_;
  int64_t sessions_;                  // slots of sessions, which come first
  Buffer states_;                     // of sessions, then of snapshots
  Buffer controls_;                   // Control [slots]
  std::vector<uint8_t> has_pending_;  // [slots]: known to the host without asking the device
  std::vector<Penalized> penalized_;  // by session; empty with a mixture, which takes none

  Matrix head_;
  std::vector<Batch> batches_;  // of the last launches
  Likely likely_;               // of the last launch that wants them
  Ticket ticket_ = 0;           // of the last submit
  Ticket collected_ = 0;        // of the last one collected
};

RecurrentModel::RecurrentModel(const Spec& spec, Backend& backend, const ModelLimits& limits,
                               const StateLayout& layout, std::unique_ptr<Network> network)
    : spec_(spec),
      backend_(backend),
      limits_(limits),
      network_(std::move(network)),
      layout_(layout),
      work_(spec.active_parameters()) {
  limits_.chunk = backend.chunk();
  limits_.launches = backend.launches();
  limits_.recent = layout_.recent;
  slot_bytes_ = aligned(layout_.state_bytes);
  snapshot_bytes_ = aligned(layout_.fixed_bytes());
  sessions_ = limits.slots / limits.slots_of_session;
  states_ = backend.allocate(slot_bytes_ * sessions_ + snapshot_bytes_ * (limits.slots - sessions_),
                             Memory::kDevice);
  controls_ =
      backend.allocate(static_cast<int64_t>(sizeof(Control)) * limits.slots, Memory::kDevice);
  has_pending_.resize(limits.slots);
  if (spec.head.kind == HeadKind::kCategorical) penalized_.resize(sessions_);
  std::vector<Control> fresh(limits.slots);
  backend.copy({reinterpret_cast<std::byte*>(fresh.data()), controls_.bytes()}, controls_.span());
  head_ = make_matrix(backend_, DType::kF32, limits_.values, spec_.head.width(), Memory::kDevice);
  for (int i = 0; i < limits_.launches; ++i) batches_.push_back(make_batch());
  likely_ = make_likely();
}

RecurrentModel::Batch RecurrentModel::make_batch() const {
  const auto host = [&](int count) {
    return make_matrix(backend_, DType::kI32, 1, count, Memory::kHost);
  };
  const int rows = limits_.rows;
  const int inputs = limits_.values;
  const int64_t values = int64_t{limits_.steps} * rows;
  Batch batch;
  batch.slot = host(rows);
  batch.first = host(rows + 1);
  batch.likely.resize(rows);
  batch.head_row = host(rows);
  batch.pending = host(rows);
  batch.values = host(inputs);
  batch.targets = host(inputs);
  batch.log_probs = make_matrix(backend_, DType::kF32, 1, inputs, Memory::kHost);
  batch.sampled_values =
      backend_.allocate(values * static_cast<int64_t>(sizeof(Sampled)), Memory::kHost);
  batch.top = backend_.allocate(values * kMaxTopLogProbs * static_cast<int64_t>(sizeof(TopLogProb)),
                                Memory::kHost);
  if (penalized_.empty()) return batch;
  batch.penalties =
      backend_.allocate(rows * static_cast<int64_t>(sizeof(RowPenalties)), Memory::kHost);
  batch.biases = backend_.allocate(rows * kMaxLogitBiases * static_cast<int64_t>(sizeof(LogitBias)),
                                   Memory::kHost);
  return batch;
}

RecurrentModel::Likely RecurrentModel::make_likely() const {
  const int inputs = limits_.values;
  const auto host = [&](int count) {
    return make_matrix(backend_, DType::kI32, 1, count, Memory::kHost);
  };
  Likely likely = {
      .slot = host(inputs),
      .first = host(inputs + 1),
      .head_row = host(inputs),
      .pending = host(inputs),
      .controls =
          backend_.allocate(inputs * static_cast<int64_t>(sizeof(Control)), Memory::kDevice),
      .sampled_values =
          backend_.allocate(inputs * static_cast<int64_t>(sizeof(Sampled)), Memory::kHost),
      .top = backend_.allocate(inputs * kMaxTopLogProbs * static_cast<int64_t>(sizeof(TopLogProb)),
                               Memory::kHost)};
  Control control;
  control.remaining = std::numeric_limits<int64_t>::max();
  control.sampling.greedy = true;
  control.top_log_probs = std::min(kMaxTopLogProbs, spec_.vocabulary);
  std::vector<Control> controls(inputs, control);
  backend_.copy({reinterpret_cast<std::byte*>(controls.data()), likely.controls.bytes()},
                likely.controls.span());
  std::iota(likely.slot.view.i32(), likely.slot.view.i32() + inputs, 0);
  std::iota(likely.first.view.i32(), likely.first.view.i32() + inputs + 1, 0);
  std::fill_n(likely.pending.view.i32(), inputs, kNoValue);
  return likely;
}

void RecurrentModel::set(SlotId slot, const Control& control, bool zero_state) {
  check(slot >= 0 && slot < limits_.slots, "the slot exists");
  check(control.pending >= kNoValue && control.pending < spec_.vocabulary,
        "a pending value is one of the vocabulary");
  check(control.position >= 0 && (spec_.positions == 0 || control.position <= spec_.positions),
        "a position is one of the sequence");
  Control held = control;
  backend_.copy(bytes_of(held), bytes_of(this->control(slot)));
  if (zero_state) backend_.zero(piece_of_state(slot, 0, layout_.fixed_bytes()));
  has_pending_[slot] = control.pending != kNoValue;
  if (slot < std::ssize(penalized_)) penalized_[slot] = {};
  if (control.pending == kNoValue || layout_.recent == 0) return;
  const int64_t entry = control.position % layout_.recent;  // as RecentRing::note()
  int32_t noted = control.pending + 1;
  backend_.copy(bytes_of(noted), piece_of_state(slot, layout_.recent_offset + entry * 4, 4));
}

void RecurrentModel::penalize(SlotId slot, Penalized penalized) {
  check(slot >= 0 && slot < std::ssize(penalized_),
        "the slot is a session's, of a model with a categorical head");
  check(penalized.penalties == nullptr ||
            std::ssize(penalized.penalties->logit_bias) <= kMaxLogitBiases,
        "a row has at most kMaxLogitBiases biases");
  penalized_[slot] = std::move(penalized);
}

void RecurrentModel::copy(SlotId from, SlotId to, int64_t inputs) {
  check(from != to, "a state is not copied to itself");
  const int64_t bytes = layout_.live_bytes(inputs);
  backend_.copy(piece_of_state(from, 0, bytes), piece_of_state(to, 0, bytes));
  backend_.copy(bytes_of(control(from)), bytes_of(control(to)));
  has_pending_[to] = has_pending_[from];
  if (std::max(from, to) < std::ssize(penalized_)) penalized_[to] = penalized_[from];
}

void RecurrentModel::read(SlotId slot, int64_t offset, std::span<std::byte> bytes) {
  const auto count = static_cast<int64_t>(bytes.size());
  backend_.copy(piece_of_state(slot, offset, count), {bytes.data(), count});
}

void RecurrentModel::write(SlotId slot, int64_t offset, std::span<const std::byte> bytes) {
  const auto count = static_cast<int64_t>(bytes.size());
  backend_.copy({const_cast<std::byte*>(bytes.data()), count}, piece_of_state(slot, offset, count));
}

void RecurrentModel::copy_piece(SlotId from, SlotId to, int64_t offset, int64_t bytes) {
  check(from != to, "a state is not copied to itself");
  backend_.copy(piece_of_state(from, offset, bytes), piece_of_state(to, offset, bytes));
}

void RecurrentModel::stage_row(int index, const Row& row, Batch& batch) {
  const int pending = has_pending_[row.slot];
  int32_t* values = batch.values.view.i32();
  const int known = static_cast<int>(row.values.size()) + pending;
  check(known > 0, "a row has an input");
  const int inputs = row.want == Want::kNext ? 1 : known - 1;
  check(batch.inputs + inputs <= limits_.values, "the batch is within limits().values");
  batch.slot.view.i32()[index] = row.slot;
  batch.first.view.i32()[index] = batch.inputs;
  const bool samples = row.want == Want::kNext;
  batch.head_row.view.i32()[index] = samples ? batch.inputs : -1;
  batch.pending.view.i32()[index] = samples ? kNoValue : row.values.back();
  batch.likely[index] = row.want == Want::kScores ? row.top_log_probs : 0;
  batch.wants_likely |= batch.likely[index] > 0;
  // Input i is known value i. A score is about the value after it, known value i + 1.
  const auto value = [&](int i) {
    if (pending == 1 && i == 0) return kNoValue;
    return row.values[i - pending];
  };
  for (int i = 0; i < inputs; ++i) {
    values[batch.inputs + i] = value(i);
    if (row.want == Want::kScores) batch.targets.view.i32()[batch.scored + i] = value(i + 1);
  }
  batch.inputs += inputs;
  has_pending_[row.slot] = 1;
  if (samples) ++batch.sampled;
  if (row.want == Want::kScores) batch.scored += inputs;
}

void RecurrentModel::stage(std::span<const Row> rows, Batch& batch) {
  check(rows.size() <= static_cast<size_t>(limits_.rows), "the batch is within limits().rows");
  batch.rows = {batch.slot.view.i32(), batch.first.view.i32(), static_cast<int>(rows.size())};
  batch.inputs = batch.sampled = batch.scored = 0;
  batch.wants_likely = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    check(i == 0 || rows[i - 1].want <= rows[i].want, "rows stand in the order of Want");
    check(rows[i].want != Want::kNext || rows[i].values.empty(),
          "a row that samples gives no values");
    stage_row(static_cast<int>(i), rows[i], batch);
  }
  for (int i = 0; batch.wants_likely && i < batch.scored; ++i) {
    likely_.head_row.view.i32()[i] = batch.sampled + i;
  }
  batch.first.view.i32()[rows.size()] = batch.inputs;
  stage_penalties(rows.first(batch.sampled), batch);
}

// Writes the penalties of `rows`, which sample, to the buffers of the batch.
void RecurrentModel::stage_penalties(std::span<const Row> rows, Batch& batch) const {
  batch.penalized =
      std::ranges::any_of(rows, [&](const Row& row) { return penalties_of(row) != nullptr; });
  if (!batch.penalized) return;
  auto* const penalties = batch.penalties.as<RowPenalties>();
  std::fill_n(penalties, batch.rows.count, RowPenalties{});
  int32_t biases = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Penalties* const by = penalties_of(rows[i]);
    if (by == nullptr) continue;
    penalties[i] = RowPenalties::of(penalized_[rows[i].slot], biases);
    std::ranges::copy(by->logit_bias, batch.biases.as<LogitBias>() + biases);
    biases += penalties[i].biases;
  }
}

Run RecurrentModel::run_of(const Batch& batch, Backend& lane, int begin, int end) const {
  const Rows rows = batch.rows.slice(begin, end);
  const int first = rows.first[0];
  const int read = std::clamp(batch.sampled + batch.scored - first, 0, rows.inputs());
  return {.lane = lane,
          .rows = rows,
          .first = first,
          .inputs = rows.inputs(),
          .read = read,
          .values = batch.values.view.columns(first, rows.inputs()),
          .control = controls_.as<Control>(),
          .states = {states_.data(), slot_bytes_, 0},
          .recent = {.states = {states_.data(), slot_bytes_, layout_.recent_offset},
                     .room = layout_.recent,
                     .inputs = batch.sampled < batch.rows.count ? batch.values.view.i32() : nullptr,
                     .penalties =
                         batch.penalized ? batch.penalties.as<RowPenalties>() + begin : nullptr,
                     .biases = batch.biases.as<LogitBias>()},
          .head = head_.view.slice(first, read)};
}

// Scored inputs come after sampled ones.
void RecurrentModel::score(const Batch& batch, const Run& run) const {
  const int begin = std::max(run.first, batch.sampled);
  const int count = run.first + run.read - begin;
  if (count <= 0) return;
  const int target = begin - batch.sampled;
  run.lane.score(spec_.head, head_.view.slice(begin, count),
                 batch.targets.view.columns(target, count),
                 batch.log_probs.view.columns(target, count));
  if (batch.wants_likely) find_likely(batch, run, target, count);
}

void RecurrentModel::find_likely(const Batch& batch, const Run& run, int target, int count) const {
  const Rows all = {likely_.slot.view.i32(), likely_.first.view.i32(), batch.scored};
  const Outputs outputs = {likely_.head_row.view.i32() + target,
                           likely_.pending.view.i32() + target};
  const SampledTo to = {likely_.sampled_values.as<Sampled>(), likely_.top.as<TopLogProb>()};
  run.lane.sample(all.slice(target, target + count), outputs, spec_.head,
                  head_.view.top(batch.sampled + batch.scored), likely_.controls.as<Control>(),
                  to.from(target));
}

Ticket RecurrentModel::submit(std::span<const Row> rows, int steps) {
  check(steps >= 1 && steps <= limits_.steps, "the steps are within limits().steps");
  check(ticket_ - collected_ < batches_.size(), "the submits are within limits().launches");
  Batch& batch = batch_of(++ticket_);
  stage(rows, batch);
  batch.steps = steps;
  check(steps == 1 || batch.sampled == batch.rows.count, "several steps are for rows that sample");
  const auto pass = [this, &batch](Backend& lane, int begin, int end) {
    this->pass(batch, lane, begin, end);
  };
  backend_.run(batch.rows, work_, pass);
  return ticket_;
}

// Takes rows [begin, end) through all steps. A kernel for the whole network does not apply
// penalties.
void RecurrentModel::pass(const Batch& batch, Backend& lane, int begin, int end) const {
  const Run run = run_of(batch, lane, begin, end);
  const SampledTo to = sampled(batch, 0).from(begin);
  if (network_->fused() && batch.sampled == batch.rows.count && !batch.penalized) {
    network_->steps(run, to, limits_.rows, batch.steps);
    return;
  }
  const View head = head_.view.top(batch.sampled + batch.scored);
  const Outputs outputs = {batch.head_row.view.i32() + begin, batch.pending.view.i32() + begin,
                           run.recent};
  for (int step = 0; step < batch.steps; ++step) {
    if (run.inputs > 0) network_->forward(run);
    score(batch, run);
    lane.sample(run.rows, outputs, spec_.head, head, run.control, sampled(batch, step).from(begin));
  }
}

Result<bool> RecurrentModel::collect(Ticket ticket, std::vector<Emitted>& out) {
  check(ticket == collected_ + 1 && ticket <= ticket_, "tickets are collected in order");
  const Result<bool> done = backend_.done(static_cast<int>(ticket_ - ticket));
  if (!done.ok() || !*done) return done;
  collected_ = ticket;
  const Batch& batch = batch_of(ticket);
  for (int step = 0; step < batch.steps; ++step) {
    for (int row = 0; row < batch.sampled; ++row) {
      const SampledTo at = sampled(batch, step).from(row);
      if (at.rows->row < 0) continue;
      out.push_back({.row = row,
                     .value = at.rows->value,
                     .position = at.rows->position,
                     .log_prob = at.rows->log_prob,
                     .top = {at.top, static_cast<size_t>(at.rows->top_count)}});
    }
  }
  const int32_t* first = batch.rows.first;
  for (int row = batch.sampled, i = 0; i < batch.scored; ++row) {
    for (; i < first[row + 1] - batch.sampled; ++i) {
      const TopLogProb* const top = likely_.top.as<TopLogProb>() + i * kMaxTopLogProbs;
      const int count =
          batch.likely[row] == 0 ? 0 : likely_.sampled_values.as<Sampled>()[i].top_count;
      out.push_back({.row = row,
                     .value = batch.targets.view.i32()[i],
                     .log_prob = batch.log_probs.view.f32()[i],
                     .top = {top, static_cast<size_t>(std::min(batch.likely[row], count))}});
    }
  }
  return true;
}

}  // namespace

std::unique_ptr<Model> make_recurrent_model(const Spec& spec, Backend& backend,
                                            const ModelLimits& limits, const StateLayout& layout,
                                            std::unique_ptr<Network> network) {
  return std::make_unique<RecurrentModel>(spec, backend, limits, layout, std::move(network));
}

}  // namespace runnel
