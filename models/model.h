// The whole network as the scheduler sees it: slots hold states, and rows advance them. The
// scheduler's tests use a fake of this interface, and a fused whole-model kernel can implement it
// directly.
//
// A slot holds the state after the values consumed so far, and one pending value, which was given
// or sampled but is not consumed yet. A row wants one of these:
// - kNext: the row has no values. Consumes the pending value and samples the next one, which
//   becomes pending.
// - kScores: the inputs are the pending value, if there is one, and then the row's values. Consumes
//   all inputs but the last, which becomes pending, and gives the log-probability of every input
//   but the first.
// - kNothing: as kScores, without log-probabilities: a prompt.
// In a batch, rows are in this order, so that rows with an output come first.
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
  int slots = 0;  // 0 in make_model(): as many as fit in half of the free memory
  // Slots of one session: 1, and its snapshots for rewinding. The slots of all snapshots come after
  // the slots of all sessions, and have no room for caches.
  int slots_of_session = 1;
  int rows = 0;    // in one submit
  int values = 0;  // inputs of all rows in one submit
  int steps = 0;   // in one submit; 0 in make_model(): the best number for the backend
  // Set by the model. A prompt that is split over several submits gives the same bits as in one
  // submit if it is split at positions that are multiples of this.
  int chunk = 1;
  // How many of its last values each sequence keeps for penalties. The model may lower it: to 0
  // with a mixture of logistics.
  int recent = 0;
  // Set by the model. How many submits may be in flight, not yet collected, at the same time.
  int launches = 1;
};

enum class Want : uint8_t { kNext, kScores, kNothing };

struct Row {
  SlotId slot = -1;
  std::span<const int32_t> values;
  Want want = Want::kNothing;
  // kScores: how many of the most likely values to report for each input, at most kMaxTopLogProbs.
  int top_log_probs = 0;
};

// One value that a step sampled or scored.
struct Emitted {
  int32_t row = -1;  // of the batch
  int32_t value = kNoValue;
  int64_t position = 0;                  // of `value` in its sequence
  float log_prob = 0.0F;                 // natural log, as scoring computes it
  std::span<const TopLogProb> top = {};  // most likely first, ties by value
};

// Names a submit whose results have not been collected. Submits are collected in order.
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

  // Sets everything that the slot holds except the state, and removes its penalties. With
  // `zero_state` it also sets the state to that of an empty sequence, for a new lease. Stops the
  // process if the pending value is not a value of spec(), or the position is after the last one.
  virtual void set(SlotId slot, const Control& control, bool zero_state) = 0;

  // Sets the penalties by which the slot's next values are chosen, until the next set(). Only a
  // model with a categorical head accepts penalties. If limits().recent is 0, it accepts only a
  // logit_bias. Values must be in the vocabulary, and there may be at most kMaxLogitBiases.
  virtual void penalize(SlotId slot, Penalized penalized) = 0;

  // Copies everything, including Control, except the parts of caches for positions after the
  // `inputs` that the sequence has consumed.
  virtual void copy(SlotId from, SlotId to, int64_t inputs) = 0;

  // Copy bytes [offset, offset + bytes.size()) of a state, in the form of layout(), out of or into
  // a slot. A large state can be copied in several pieces. Position and pending value are not part
  // of these bytes: the caller sets them with set().
  virtual void read(SlotId slot, int64_t offset, std::span<std::byte> bytes) = 0;
  virtual void write(SlotId slot, int64_t offset, std::span<const std::byte> bytes) = 0;
  // Copies a piece of the state from one slot to another, as copy() does, but without Control.
  virtual void copy_piece(SlotId from, SlotId to, int64_t offset, int64_t bytes) = 0;

  // Advances the rows (each slot at most once) by one step. Rows that want kNext are advanced by
  // `steps` steps; steps > 1 is allowed only if every row wants kNext. `rows` is not used after
  // submit() returns. At most limits().launches submits may be in flight.
  virtual Ticket submit(std::span<const Row> rows, int steps) = 0;

  // False: not done yet. True: appends the values that the submit emitted to `out`, ordered by step
  // and then by row. The spans `top` are valid until the next submit(). To avoid allocation,
  // reserve room for limits().values + limits().rows * limits().steps values. Not OK: the device
  // has failed permanently (INTERNAL with the reason), `out` is unchanged, and every state is lost.
  // Nothing may be submitted after that.
  virtual Result<bool> collect(Ticket ticket, std::vector<Emitted>& out) = 0;
};

}  // namespace runnel
