// A model without arithmetic: the next value is a hash of everything that a real one's would depend
// on. It checks how it is used (slots owned by one row, rows in order, values in range) and stops
// the process where the scheduler breaks the contract of models/model.h.
#pragma once

#include <functional>
#include <list>
#include <vector>

#include "models/model.h"

namespace runnel {

class FakeModel final : public Model {
 public:
  // `state_bytes`: of a state, of which the first 8 are the hash that it stands for. The ring of
  // limits.recent values comes after them.
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

  // What batch_changes_bits() says; the values are the same all the same. Before the engine has it.
  bool is_unsteady = false;

  // Called at the start of every submit: what time it takes, what happens meanwhile.
  std::function<void()> on_submit;

  // True: the launch that follows fails, and the states of its rows are lost.
  std::function<bool()> fails;

  struct Launch {
    std::vector<Row> rows;    // values are not kept
    std::vector<int> inputs;  // values given by each row
    int steps = 0;
  };
  std::list<Launch> launches;  // no allocation grows with their number

  // What a correct server must generate: `count` values after `known`, which is not empty. With
  // penalties, each depends on the last `recent` values, and on which of them come after `known`.
  static std::vector<int32_t> expected(const Spec& spec, const std::vector<int32_t>& known,
                                       uint64_t seed, uint32_t stream, int count,
                                       const Penalties* penalties = nullptr, int recent = 0);
  // The log-probability that it gives to known[i], i >= 1.
  static float expected_log_prob(const std::vector<int32_t>& known, size_t i);

 private:
  struct Slot {
    uint64_t hash = 0xdead;  // of the values consumed; never zero by accident
    Control control;
    Penalized penalized;
    std::vector<std::byte> rest;  // of the state
  };
  RecentRing recent(Slot& slot) const;
  int32_t sample(Slot& slot) const;
  // Byte `at` of the state in a slot.
  std::byte& state_byte(SlotId slot, int64_t at);
  // Where a model takes prompts in chunks, a whole one has a hash of its own. `left`: inputs of the
  // row that come next.
  void begin_chunk(Slot& slot, int64_t left) const;
  void consume(Slot& slot, int32_t value);

  const Spec spec_;
  const ModelLimits limits_;
  StateLayout layout_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Emitted>> emitted_;  // by the last launches
  std::list<std::vector<TopLogProb>> likely_;  // that they name, and all before
  Ticket ticket_ = 0;                          // of the last submit
  Ticket collected_ = 0;                       // of the last one collected
  Ticket failed_ = 0;                          // of the first launch that failed
  bool known_to_fail_ = false;                 // that has been collected
};

// A spec of symbols 0..99 without a last position, or with `positions`, and with a begin value or
// without.
Spec fake_spec(int64_t positions = 0, bool begins = false);

}  // namespace runnel
