#include "tests/engine/fake_model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace runnel {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ULL + b + 0x632be59bd9b4e019ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The hash combined with everything that penalties depend on.
uint64_t penalized_hash(uint64_t hash, const Penalties& penalties, RecentRing recent, int64_t from,
                        int64_t position) {
  for (const float term : {penalties.repetition, penalties.frequency, penalties.presence}) {
    hash = mix(hash, bit_cast<uint32_t>(term));
  }
  for (const auto& [value, bias] : penalties.logit_bias) {
    hash = mix(hash, mix(static_cast<uint64_t>(value), bit_cast<uint32_t>(bias)));
  }
  if (!penalties.looks_back()) return hash;
  recent.before(position, [&](int64_t at, int32_t value) {
    hash = mix(hash, static_cast<uint64_t>(value) * 2 + (at >= from ? 1 : 0));
  });
  return hash;
}

int32_t next_value(uint64_t hash, const Control& control, int vocabulary) {
  const uint64_t word = mix(mix(hash, control.seed), mix(control.stream, control.position));
  return static_cast<int32_t>(word % static_cast<uint64_t>(vocabulary));
}

float log_prob_of(uint64_t hash, int32_t value) {
  return -static_cast<float>(mix(hash, static_cast<uint64_t>(value)) % 1000) / 100.0F;
}

// The most likely values, most likely first.
std::vector<TopLogProb> likely(uint64_t hash, int vocabulary, int count) {
  if (count == 0) return {};
  std::vector<TopLogProb> all;
  for (int32_t value = 0; value < vocabulary; ++value) {
    all.push_back({value, log_prob_of(hash, value)});
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &TopLogProb::log_prob);
  all.resize(static_cast<size_t>(count));
  return all;
}

// The limits. If the number of steps is not set, it is one, as on a CPU.
ModelLimits with_steps(ModelLimits limits) {
  limits.steps = std::max(limits.steps, 1);
  return limits;
}

}  // namespace

Spec fake_spec(int64_t positions, bool begins) {
  Spec spec;
  spec.name = "fake";
  spec.vocabulary = 100;
  spec.positions = positions;
  spec.head = {HeadKind::kCategorical, 100, 0};
  if (begins) spec.begin = Begin{.value = 7, .histogram = {}};
  return spec;
}

FakeModel::FakeModel(Spec spec, ModelLimits limits, int64_t state_bytes)
    : spec_(std::move(spec)),
      limits_(with_steps(limits)),
      slots_(limits.slots),
      emitted_(limits.launches) {
  layout_ = {.state_bytes = state_bytes,
             .parts = {{"hash", DType::kI32, {state_bytes / 4}, 0, 4}},
             .numerics = "fake"};
  if (limits_.recent > 0) {
    layout_.recent = limits_.recent;
    layout_.recent_offset = state_bytes;
    layout_.state_bytes += int64_t{limits_.recent} * 4;
    layout_.parts.push_back({kRecentPart, DType::kI32, {limits_.recent}, state_bytes, 4});
  }
  for (Slot& slot : slots_) {
    slot.rest.resize(layout_.state_bytes - sizeof(slot.hash));
  }
}

RecentRing FakeModel::recent(Slot& slot) const {
  if (layout_.recent == 0) return {};
  const auto offset = layout_.recent_offset - static_cast<int64_t>(sizeof(slot.hash));
  return {reinterpret_cast<int32_t*>(slot.rest.data() + offset), layout_.recent};
}

void FakeModel::penalize(SlotId slot, Penalized penalized) {
  slots_.at(slot).penalized = std::move(penalized);
}

int32_t FakeModel::sample(Slot& slot) const {
  const auto& [penalties, from] = slot.penalized;
  uint64_t hash = slot.hash;
  if (penalties) {
    hash = penalized_hash(hash, *penalties, recent(slot), from, slot.control.position);
  }
  return next_value(hash, slot.control, spec_.vocabulary);
}

void FakeModel::set(SlotId slot, const Control& control, bool zero_state) {
  check(slot >= 0 && slot < limits_.slots, "the slot exists");
  Slot& held = slots_[slot];
  held.control = control;
  held.penalized = {};
  if (zero_state) {
    held.hash = 0;
    std::ranges::fill(held.rest, std::byte{0});
  }
  if (control.pending != kNoValue) recent(held).note(control.position, control.pending);
}

void FakeModel::copy(SlotId from, SlotId to, int64_t /*inputs*/) {
  check(from != to, "a state is not copied to itself");
  slots_.at(to) = slots_.at(from);
}

std::byte& FakeModel::state_byte(SlotId slot, int64_t at) {
  Slot& held = slots_.at(slot);
  constexpr int64_t kHash = sizeof(held.hash);
  return at < kHash ? reinterpret_cast<std::byte*>(&held.hash)[at] : held.rest.at(at - kHash);
}

void FakeModel::read(SlotId slot, int64_t offset, std::span<std::byte> bytes) {
  if (on_read) on_read();
  for (std::byte& byte : bytes) byte = state_byte(slot, offset++);
}

void FakeModel::write(SlotId slot, int64_t offset, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) state_byte(slot, offset++) = byte;
}

void FakeModel::copy_piece(SlotId from, SlotId to, int64_t offset, int64_t bytes) {
  check(from != to, "a state is not copied to itself");
  for (int64_t at = offset; at < offset + bytes; ++at) state_byte(to, at) = state_byte(from, at);
}

void FakeModel::consume(Slot& slot, int32_t value) {
  check(value >= 0 && value < spec_.vocabulary, "a value is in the vocabulary");
  check(spec_.positions == 0 || slot.control.position < spec_.positions,
        "a value has a position to go in");
  slot.hash = mix(slot.hash, static_cast<uint64_t>(value) + 1);
  ++slot.control.position;
}

void FakeModel::begin_chunk(Slot& slot, int64_t left) const {
  const bool whole = slot.control.position % limits_.chunk == 0 && left >= limits_.chunk;
  if (limits_.chunk > 1 && whole) slot.hash = mix(slot.hash, 0);
}

Ticket FakeModel::submit(std::span<const Row> rows, int steps) {
  if (on_submit) on_submit();
  check(ticket_ - collected_ < emitted_.size(), "launches within limits");
  check(!known_to_fail_, "nothing is submitted to a device that has failed");
  std::vector<Emitted>& emitted = emitted_[++ticket_ % emitted_.size()];
  emitted.clear();
  check(!rows.empty() && rows.size() <= static_cast<size_t>(limits_.rows), "rows within limits");
  check(steps >= 1 && steps <= limits_.steps, "steps within limits");
  std::set<SlotId> seen;
  int inputs = 0;
  Launch launch{.rows = {rows.begin(), rows.end()}, .inputs = {}, .steps = steps};
  for (const Row& row : rows) {
    check(seen.insert(row.slot).second, "a slot is in one row");
    check(steps == 1 || row.want == Want::kNext, "several steps are for rows that sample");
    launch.inputs.push_back(static_cast<int>(row.values.size()));
    inputs += row.want == Want::kNext ? 1 : static_cast<int>(row.values.size());
  }
  check(inputs <= limits_.values, "values within limits");
  launches.push_back(std::move(launch));
  if (failed_ != 0 || (fails && fails())) {  // every launch after a failed one fails, too
    for (const Row& row : rows) slots_.at(row.slot) = {};
    if (failed_ == 0) failed_ = ticket_;
    return ticket_;
  }
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < rows.size(); ++i) {
      Slot& slot = slots_.at(rows[i].slot);
      Control& control = slot.control;
      if (rows[i].want != Want::kNext) {
        int64_t left = std::ssize(rows[i].values) - (control.pending == kNoValue ? 1 : 0);
        for (const int32_t value : rows[i].values) {
          if (control.pending != kNoValue) {
            begin_chunk(slot, left--);
            consume(slot, control.pending);
          }
          if (rows[i].want == Want::kScores) {
            emitted.push_back({.row = static_cast<int32_t>(i),
                               .value = value,
                               .log_prob = log_prob_of(slot.hash, value),
                               .top = likely_.emplace_back(
                                   likely(slot.hash, spec_.vocabulary, rows[i].top_log_probs))});
          }
          control.pending = value;
          recent(slot).note(control.position, value);
        }
        continue;
      }
      check(step > 0 || control.remaining > 0, "a row that samples has values left");
      if (control.remaining == 0) continue;  // the sample has all its values
      consume(slot, control.pending);
      control.pending = sample(slot);
      recent(slot).note(control.position, control.pending);
      --control.remaining;
      emitted.push_back({.row = static_cast<int32_t>(i),
                         .value = control.pending,
                         .position = control.position,
                         .log_prob = log_prob_of(slot.hash, control.pending),
                         .top = {}});
    }
  }
  return ticket_;
}

Result<bool> FakeModel::collect(Ticket ticket, std::vector<Emitted>& out) {
  check(ticket == collected_ + 1 && ticket <= ticket_, "tickets are collected in order");
  known_to_fail_ = ticket == failed_;
  if (known_to_fail_) return Status(Code::kInternal, "the fake device failed");
  collected_ = ticket;
  const std::vector<Emitted>& emitted = emitted_[ticket % emitted_.size()];
  out.insert(out.end(), emitted.begin(), emitted.end());
  return true;
}

std::vector<int32_t> FakeModel::expected(const Spec& spec, const std::vector<int32_t>& known,
                                         uint64_t seed, uint32_t stream, int count,
                                         const Penalties* penalties, int recent) {
  uint64_t hash = 0;
  for (const int32_t value : known) hash = mix(hash, static_cast<uint64_t>(value) + 1);
  Control control;
  control.seed = seed;
  control.stream = stream;
  control.position = static_cast<int64_t>(known.size());
  std::vector<int32_t> entries(static_cast<size_t>(recent));
  const RecentRing ring = {entries.data(), recent};
  for (size_t i = 0; i < known.size(); ++i) ring.note(static_cast<int64_t>(i), known[i]);
  std::vector<int32_t> values;
  for (int i = 0; i < count; ++i) {
    const uint64_t from =
        penalties == nullptr
            ? hash
            : penalized_hash(hash, *penalties, ring, std::ssize(known), control.position);
    values.push_back(next_value(from, control, spec.vocabulary));
    ring.note(control.position, values.back());
    hash = mix(hash, static_cast<uint64_t>(values.back()) + 1);
    ++control.position;
  }
  return values;
}

float FakeModel::expected_log_prob(const std::vector<int32_t>& known, size_t i) {
  uint64_t hash = 0;
  for (size_t j = 0; j < i; ++j) hash = mix(hash, static_cast<uint64_t>(known[j]) + 1);
  return log_prob_of(hash, known[i]);
}

}  // namespace runnel
