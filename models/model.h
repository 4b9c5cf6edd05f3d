// The whole network as the scheduler sees it: slots that hold states, rows that advance them.
// A fake drives the scheduler's tests; a fused whole-model kernel can implement it directly.
//
// What a slot knows: the state of the values consumed so far, and one pending value (given or
// sampled, not consumed yet). What a row wants of a step:
// - kNext: its values are empty. Consumes the pending value and samples the next, which becomes
//   pending.
// - kScores: its inputs are the pending value, if there is one, and its values. Consumes all but
//   the last, which becomes pending, and gives the log-probability of every input but the first.
// - kNothing: as kScores, without log-probabilities: a prompt.
// Rows stand in that order in a batch, so that those with an output come first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/control.h"
#include "kernels/penalties.h"
#include "models/spec.h"
#include "models/state/layout.h"

namespace runnel {

using SlotId = int32_t;

struct ModelLimits {
  int slots = 0;  // to make_model(), 0: as many as fit half of the memory that is free then
  // With the snapshots that it can go back to. Those have the last slots, after those of all
  // sessions, and no room for caches.
  int slots_of_session = 1;
  int rows = 0;    // in one submit
  int values = 0;  // inputs of all rows of one submit together
  int steps = 0;   // in one submit; to make_model(), 0: as serves best on the backend
  // The model says: a prompt that comes in several submits has the same bits as in one where it was
  // cut at positions that are multiples of this.
  int chunk = 1;
  // Values that each sequence keeps of its last ones, for penalties. The model says how many those
  // are: none with a mixture of logistics.
  int recent = 0;
  // The model says: submits that may wait to be collected at the same time.
  int launches = 1;
};

enum class Want : uint8_t { kNext, kScores, kNothing };

struct Row {
  SlotId slot = -1;
  std::span<const int32_t> values;
  Want want = Want::kNothing;
  // kScores: how many of the most likely values to report beside each, at most kMaxTopLogProbs.
  int top_log_probs = 0;
};

// One value that a step sampled or scored.
struct Emitted {
  int32_t row = -1;  // of the batch
  int32_t value = kNoValue;
  int64_t position = 0;                  // of `value` in its sequence
  float log_prob = 0.0F;                 // natural log, the scoring form
  std::span<const TopLogProb> top = {};  // most likely first, ties by value
};

// Names a submit whose results have not been collected. Collected in order.
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
  // The device that steps run on.
  virtual DeviceKind device() const = 0;
  // Whether the bits of a sequence depend on the other rows of its batch.
  virtual bool batch_changes_bits() const = 0;

  // Sets all that the slot holds besides its state, and with `zero_state` makes that the state of
  // an empty sequence: a fresh lease. It has no penalties then. Stops the process when the pending
  // value is no value of spec(), or the position lies behind the last one.
  virtual void set(SlotId slot, const Control& control, bool zero_state) = 0;

  // How the slot's next values are chosen, until the next set(). Only a model with a
  // categorical head takes penalties; without limits().recent it takes a logit_bias alone. Values
  // are of the vocabulary, and at most kMaxLogitBiases.
  virtual void penalize(SlotId slot, Penalized penalized) = 0;

  // Copies everything, Control included, but what caches hold of later positions than the `inputs`
  // that the sequence has consumed.
  virtual void copy(SlotId from, SlotId to, int64_t inputs) = 0;

  // Move bytes [offset, offset + bytes.size()) of a state, the parts of layout(), out of or into a
  // slot; a large state can go in several pieces. Position and pending value are not in it: who
  // moves a state set()s them.
  virtual void read(SlotId slot, int64_t offset, std::span<std::byte> bytes) = 0;
  virtual void write(SlotId slot, int64_t offset, std::span<const std::byte> bytes) = 0;
  // The same from one slot to another: a piece of what copy() copies, without Control.
  virtual void copy_piece(SlotId from, SlotId to, int64_t offset, int64_t bytes) = 0;

  // Advances the rows (each slot at most once) by one step, and those that want kNext by `steps` in
  // all; steps > 1 only when every row wants kNext. `rows` may go away on return. At most
  // limits().launches wait to be collected.
  virtual Ticket submit(std::span<const Row> rows, int steps) = 0;

  // False: not done yet. True: appends what the submit emitted to `out`, in the order of steps, and
  // within a step of rows; what `top` names lasts until the next submit(). Reserve
  // limits().values + limits().rows * limits().steps to avoid allocation. Not OK: the device has
  // failed for good (INTERNAL, saying how), `out` is as it was, and every state is lost. Nothing
  // may be submitted after that.
  virtual Result<bool> collect(Ticket ticket, std::vector<Emitted>& out) = 0;
};

}  // namespace runnel
