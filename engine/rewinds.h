// The history to which named sessions can be rewound: for each session its last values, and a
// snapshot of its state about every `rewind_every` values. Feeding the values after a snapshot
// again reaches any later position with the same bits.
//
// All memory is allocated at construction. Snapshots are in slots of the model, after the slots of
// sessions, so that a snapshot is copied within the device. The copy runs between steps, and each
// turn copies a bounded number of bytes. Only the session's own row waits for it. If rewinding is
// off, nothing is allocated, and every function returns at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/options.h"
#include "engine/session.h"

namespace runnel {

// How many snapshots each session needs, so that it can be rewound to any of its last
// options.rewind_values positions. 0 if rewinding is off. `steps`: the maximum number of steps of a
// launch.
int64_t snapshots_of(const EngineOptions& options, int steps);

// The way back to a position: a state, and the values after it.
struct WayBack {
  std::optional<SlotId> snapshot;  // none: the state of an empty sequence
  int64_t position = 0;            // the position of a session with that state
  int32_t pending = kNoValue;
  std::vector<int32_t> values;  // from there to the requested position
};

class Rewinds {
 public:
  // Both arguments must outlive the object. The model must have 1 + snapshots_of() slots for each
  // session.
  Rewinds(Model& model, const EngineOptions& options);

  bool on() const { return window_ > 0; }
  // The number of slots of the model that are for sessions. They are the first ones.
  int sessions() const { return sessions_; }

  // The memory of all histories, on the device and on the host.
  int64_t bytes() const;

  // Starts the session's history at its present position, which becomes the oldest position that
  // the session can be rewound to. `empty`: its state is that of an empty sequence, all zero.
  void begin(const Session& session, bool empty);
  // Adds `values`, which the session has just appended to its sequence, to the history.
  void note(const Session& session, std::span<const int32_t> values);

  // --- Before a step ---

  // Begins a turn of the scheduler, with a new allowance of bytes to copy.
  void begin_turn() { left_ = kBytesPerTurn; }
  // Whether something was copied in this turn.
  bool copied() const { return left_ < kBytesPerTurn; }
  // Takes the snapshot that is due before the session advances, as far as the turn's bytes allow.
  // False: the snapshot is incomplete, and the session must not be advanced.
  bool ready(const Session& session);
  // The maximum number of values that the session may consume in one step of a prompt: up to its
  // next snapshot.
  int64_t most_inputs(const Session& session) const;
  // To be called when the call on the session has ended. Discards an incomplete snapshot.
  void leave(const Session& session);

  // --- Going back ---

  // The oldest position that the session can go back to.
  int64_t oldest(const Session& session) const;
  // The way back to a position, which must be from oldest() to the session's present position.
  // Forgets the history after the state where the way begins.
  WayBack go_back(const Session& session, int64_t position);

 private:
  static constexpr int64_t kBytesPerTurn = 1 << 20;  // about a tenth of a millisecond

  struct Past {
    bool from_empty = false;  // the history began with the state of an empty sequence
    int64_t begun = 0;        // the position where the history begins
    int64_t first = 0;        // the position of the oldest value that is kept
    int64_t taken = 0;        // snapshots since the start
    int64_t kept = 0;         // how many of the last snapshots are kept
    int64_t copied = -1;      // copied bytes of the snapshot in progress; -1: none is in progress
    int64_t inputs = 0;       // values that the state of this snapshot has consumed
  };

  bool has(const Session& session) const;
  bool is_due(const Session& session) const;
  // The position of a session with the state of a snapshot that has consumed `inputs` values.
  static int64_t position_of(const Past& past, int64_t inputs);
  void copy_due();
  SlotId slot_of(SlotId session, int64_t snapshot) const;
  int64_t& inputs_of(SlotId session, int64_t snapshot);
  int64_t inputs_of(SlotId session, int64_t snapshot) const;
  int32_t& value_at(SlotId session, int64_t position);

  Model& model_;
  const int64_t window_, every_;
  const int64_t snapshots_;  // of each session
  const int sessions_;
  const int64_t room_;           // how many values of each session are kept
  std::vector<Past> pasts_;      // by slot
  std::vector<int64_t> inputs_;  // [slots][snapshots]: how many values the snapshot has consumed
  std::vector<int32_t> values_;  // [slots][room], each at its position modulo room
  std::vector<SlotId> due_;      // the sessions whose snapshots are in progress, the next one first
  int64_t left_ = 0;             // the bytes that this turn may still copy
};

}  // namespace runnel
