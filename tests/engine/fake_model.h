// A model without arithmetic: the next value is a hash of everything that the next value of a real
// model depends on. It checks its use (each slot has one row, rows keep their order, values are in
// range) and aborts if the scheduler breaks the contract of models/model.h.
#pragma once

#include <functional>
#include <list>
#include <vector>

#include "models/model.h"

namespace runnel {

class FakeModel final : public Model {
 public:
  // `state_bytes`: the size of a state. Its first 8 bytes are the hash of the values consumed. The
  // ring of limits.recent values follows the state.
  FakeModel(Spec spec, ModelLimits limits, int64_t state_bytes = 8);

  const Spec& spec() const override { return spec_; }
  const StateLayout& layout() const override { return layout_; }
  ModelLimits limits() const override { return limits_; }
  DeviceKind device() const override { return DeviceKind::kCpu; }
  bool batch_changes_bits() const override { return is_unsteady; }
  void set(SlotId slot, const Control& control, bool zero_state) override;
  void penalize(SlotId slot, Penalized penalized) override;
  void copy(SlotId from, SlotId to, int64_t inputs) override;
  void read(SlotId slot, int64_t offset, std::span<std::byte> bytes) override;
  void write(SlotId slot, int64_t offset, std::span<const std::byte> bytes) override;
  void copy_piece(SlotId from, SlotId to, int64_t offset, int64_t bytes) override;
  Ticket submit(std::span<const Row> rows, int steps) override;
  Result<bool> collect(Ticket ticket, std::vector<Emitted>& out) override;

  // The result of batch_changes_bits(). It changes no values. Set it before the engine exists.
  bool is_unsteady = false;

  // Called at the start of every submit, and of every read. A test advances the clock or changes
  // something here.
  std::function<void()> on_submit, on_read;

  // If it returns true, the next launch fails, and the states of its rows are lost.
  std::function<bool()> fails;

  struct Launch {
    std::vector<Row> rows;    // without their values
    std::vector<int> inputs;  // the number of values given by each row
    int steps = 0;
  };
  std::list<Launch> launches;  // a list, so that no allocation is large

  // The `count` values that a correct server generates after `known` (not empty). With penalties,
  // each depends on the last `recent` values, and on which of these come after `known`.
  static std::vector<int32_t> expected(const Spec& spec, const std::vector<int32_t>& known,
                                       uint64_t seed, uint32_t stream, int count,
                                       const Penalties* penalties = nullptr, int recent = 0);
  // The log-probability that the model gives to known[i], for i >= 1.
  static float expected_log_prob(const std::vector<int32_t>& known, size_t i);

 private:
  struct Slot {
    uint64_t hash = 0xdead;  // of the values consumed; not 0 before set()
    Control control;
    Penalized penalized;
    std::vector<std::byte> rest;  // the bytes of the state after the hash
  };
  RecentRing recent(Slot& slot) const;
  int32_t sample(Slot& slot) const;
  // Byte `at` of the state in a slot.
  std::byte& state_byte(SlotId slot, int64_t at);
  // If the model takes prompts in chunks, a whole chunk changes the hash in its own way. `left`:
  // the number of the row's remaining inputs.
  void begin_chunk(Slot& slot, int64_t left) const;
  void consume(Slot& slot, int32_t value);

  const Spec spec_;
  const ModelLimits limits_;
  StateLayout layout_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Emitted>> emitted_;  // the results of the launches not yet collected
  std::list<std::vector<TopLogProb>> likely_;  // the log-probabilities that any result points to
  Ticket ticket_ = 0;                          // of the last submit
  Ticket collected_ = 0;                       // of the last launch collected
  Ticket failed_ = 0;                          // of the first failed launch
  bool known_to_fail_ = false;                 // whether the failed launch was collected
};

// A spec with symbols 0..99. It has a last position if `positions` is not 0, and a begin value if
// `begins`.
Spec fake_spec(int64_t positions = 0, bool begins = false);

}  // namespace runnel
