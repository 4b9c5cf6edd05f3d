// A state on its way: out of a session (export), into one (import), from one to others (fork), or
// from a snapshot back into its session (rewind). It goes piece by piece between steps; its
// sessions are moving meanwhile, and no call runs on them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/session.h"
#include "models/state/file.h"

namespace runnel {

// Told once, on the scheduler's thread: the sessions that were made, or why there are none.
using MoveDone = std::function<void(Result<std::vector<SessionInfo>>)>;

struct StateMove {
  Session* from = nullptr;            // null: import, rewind
  std::optional<SlotId> from_slot;    // of `from`, or of the snapshot; none: import
  std::vector<Session*> to;           // empty: export
  std::shared_ptr<StateImage> image;  // null: fork, rewind
  int64_t bytes = 0;                  // of the state that are moved, the first ones
  int64_t moved = 0;                  // of them, so far
  MoveDone done;
};

}  // namespace runnel
