// A state that is being copied: out of a session (export), into a session (import), from one
// session to others (fork), or from a snapshot back into its session (rewind). It is copied in
// pieces between steps. Its sessions are in the phase kMoving until the copy is complete, so that
// no call runs on them. A copy of a session at rest is the exception: the session stays at rest,
// and the first call on it ends the copy.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/session.h"
#include "models/state/file.h"

namespace runnel {

// Called once, on the scheduler's thread, with the sessions that were made, or with the reason for
// a failure.
using MoveDone = std::function<void(Result<std::vector<SessionInfo>>)>;

// A session at rest, as it was when its copy began.
struct Rested {
  SessionKey key;
  uint64_t used = 0;  // Session::used
};

struct StateMove {
  Session* from = nullptr;            // null: import, rewind, copy of a session at rest
  std::optional<SlotId> from_slot;    // of `from`, `rested` or the snapshot; none: import
  std::optional<Rested> rested;       // none: not a copy of a session at rest
  std::vector<Session*> to;           // empty: export, copy
  std::shared_ptr<StateImage> image;  // null: fork, rewind
  int64_t bytes = 0;                  // how many of the state's first bytes are copied
  int64_t moved = 0;                  // how many of them have been copied so far
  MoveDone done;
};

}  // namespace runnel
