// The whole network as the scheduler sees it: slots that hold states, rows that advance them.
// A fake drives the scheduler's tests; a fused whole-model kernel can implement it directly.
//
// What a slot knows: the state of the values consumed so far, and one pending value (given or sampled, not
// consumed yet). A row gives its slot more values:
//   inputs = [the pending value, if any] + row.values
//   kNothing  consumes all inputs but the last, which becomes pending
//   kNext     consumes all inputs and samples the next value, which becomes pending
//   kScores   as kNothing, and gives the log-probability of every input but the first
// So a decoding row is {slot, {}, kNext}. A row without any input is a programming error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/control.h"
#include "models/spec.h"

namespace runnel {

using SlotId = int32_t;

struct StateLayout {
  int64_t fixed_bytes = 0;  // of one state, as read() and write() move it, Control included
  std::string numerics;     // all that decides the bits
};

struct ModelLimits {
  int slots = 0;
  int rows = 0;    // in one submit
  int values = 0;  // inputs of all rows of one submit together
  int steps = 0;   // in one submit
};

enum class Want : uint8_t { kNothing, kNext, kScores };

struct Row {
  SlotId slot = -1;
  std::span<const int32_t> values;
  Want want = Want::kNothing;
};

// Names a submit (or a copy) whose results have not been collected. Collected in order.
using Ticket = uint64_t;

class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  virtual const Spec& spec() const = 0;
  virtual const StateLayout& layout() const = 0;
  virtual ModelLimits limits() const = 0;

  // Sets all that the slot holds beside (S, z), and with `zero_state` zeroes (S, z): a fresh lease.
  virtual void set(SlotId slot, const Control& control, bool zero_state) = 0;

  // Copies everything, Control included.
  virtual void copy(SlotId from, SlotId to) = 0;

  // Moves everything that a slot holds out of or into the model; bytes.size() == layout().fixed_bytes.
  virtual void read(SlotId slot, std::span<std::byte> bytes) = 0;
  virtual void write(SlotId slot, std::span<const std::byte> bytes) = 0;

  // Advances the rows (each slot at most once) by one step, and those that want kNext by `steps` in all;
  // steps > 1 only when every row is a decoding row. `rows` may go away on return.
  virtual Ticket submit(std::span<const Row> rows, int steps) = 0;

  // False: not done yet. True: appends what the submit emitted to `out`, in the order of steps, and
  // within a step of rows. Reserve limits().values + limits().rows * limits().steps to avoid allocation.
  virtual bool collect(Ticket ticket, std::vector<Emitted>& out) = 0;
};

}  // namespace runnel
