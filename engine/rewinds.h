// The history to which named sessions can be rewound: for each session its last values, and a
// snapshot of its state about every `rewind_every` values. Feeding the values after a snapshot
// again reaches any later position with the same bits.
//
// All memory is allocated at construction. Snapshots are slots of the model, after those of the
// sessions, so that taking one is a copy within the device. The copy runs between two steps, in
// pieces bounded for each turn; only the session's own row waits for it. Where rewinding is off,
// nothing is allocated, and every function returns at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/options.h"
#include "engine/session.h"

namespace runnel {

// Snapshots that each session has, so that it can be rewound to any of its last
// options.rewind_values positions; 0 where rewinding is off. `steps`: of a launch.
int64_t snapshots_of(const EngineOptions& options, int steps);

// The way back to a position: a state, and the values after it.
struct WayBack {
  std::optional<SlotId> snapshot;  // none: the state of an empty sequence
  int64_t position = 0;            // the position of a session with that state
  int32_t pending = kNoValue;
  std::vector<int32_t> values;  // from there to the position that was asked for
};

class Rewinds {
 public:
  // Both outlive it. The model has 1 + snapshots_of() slots for each session.
  Rewinds(Model& model, const EngineOptions& options);

  bool on() const { return window_ > 0; }
  // Slots of the model that are for sessions: the first ones.
  int sessions() const { return sessions_; }

  // Memory of all histories, on the device and on the host.
  int64_t bytes() const;

  // Starts the session's history at its present position, the oldest that it can be rewound to.
  // `empty`: its state is that of an empty sequence, all zero.
  void begin(const Session& session, bool empty);
  // Adds `values`, which the session has just appended to its sequence.
  void note(const Session& session, std::span<const int32_t> values);

  // --- Before a step ---

  // Begins a turn of the scheduler, with a new allowance of bytes to copy.
  void begin_turn() { left_ = kBytesPerTurn; }
  // Something was copied in this turn.
  bool copied() const { return left_ < kBytesPerTurn; }
  // Takes the snapshot that is due before the session advances, as far as the turn's bytes allow.
  // False: the snapshot is incomplete, and the session must not be advanced.
  bool ready(const Session& session);
  // The most values that the session may consume in one step of a prompt: up to its next snapshot.
  int64_t most_inputs(const Session& session) const;
  // The call on the session has ended: a snapshot that is not whole is given up.
  void leave(const Session& session);

  // --- Going back ---

  // The oldest position that the session can go back to.
  int64_t oldest(const Session& session) const;
  // The way back to a position from oldest() to where the session stands; what comes after the
  // state where it begins is forgotten.
  WayBack go_back(const Session& session, int64_t position);

 private:
  static constexpr int64_t kBytesPerTurn = 1 << 20;  // about a tenth of a millisecond

  struct Past {
    bool from_empty = false;  // begun where the state was that of an empty sequence
    int64_t begun = 0;        // the position where it begins
    int64_t first = 0;        // the position of the oldest value that is known
    int64_t taken = 0;        // snapshots since the start; the last `kept` of them are there
    int64_t kept = 0;
    int64_t copied = -1;  // bytes of the snapshot that is being taken; -1: none is
    int64_t inputs = 0;   // values that its state has consumed
  };

  bool has(const Session& session) const;
  bool is_due(const Session& session) const;
  // The position of a session with the state of a snapshot.
  static int64_t position_of(const Past& past, int64_t inputs);
  void copy_due();
  SlotId slot_of(SlotId session, int64_t snapshot) const;
  int64_t& inputs_of(SlotId session, int64_t snapshot);
  int64_t inputs_of(SlotId session, int64_t snapshot) const;
  int32_t& value_at(SlotId session, int64_t position);

  Model& model_;
  const int64_t window_, every_;
  const int64_t snapshots_;  // of a session
  const int sessions_;
  const int64_t room_;           // values of a session that are kept
  std::vector<Past> pasts_;      // by slot
  std::vector<int64_t> inputs_;  // [slots][snapshots]: how many values the snapshot has consumed
  std::vector<int32_t> values_;  // [slots][room], each at its position modulo room
  std::vector<SlotId> due_;      // whose snapshots are being taken, the next one first
  int64_t left_ = 0;             // bytes that this turn may still copy
};

}  // namespace runnel
