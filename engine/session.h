// One sequence and its phases. Every running call works on a session: a named session from the
// table, or an anonymous session of its own.
//
//              kFeed       kSample      kMove    kPause   kEnd
//   new        prompting   generating   moving   -        ended
//   prompting  -           generating   -        idle     ended
//   generating -           -            -        idle     ended
//   moving     -           -            -        idle     ended
//   idle       prompting   generating   moving   -        ended
//   ended      -           -            -        -        -
//
// If a call starts from a session but does not continue it, the call copies the session's state.
// The session does not change, but its idle time begins again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/call_record.h"
#include "engine/request.h"
#include "models/model.h"

namespace runnel {

enum class SessionEvent {
  kFeed,    // a call gives it values
  kSample,  // a call samples from it
  kMove,    // its state is copied, from it or into it
  kPause,   // the call has ended, and the session stays
  kEnd,     // its slot returns to the pool
};

const char* session_phase_name(SessionPhase state);

// The next phase by the table above. None if the event cannot happen in this phase.
std::optional<SessionPhase> next_state(SessionPhase state, SessionEvent event);

struct Session {
  SessionKey key;
  std::string account;                  // the account whose share the slot counts against
  std::shared_ptr<const void> counted;  // while it exists, the slot counts against a key's quota
  bool stored = false;                  // a stored state: calls start from it, but never change it
  SlotId slot = -1;
  SessionPhase state = SessionPhase::kNew;
  int64_t position = 0;        // the position of the next value: the number of known values
  int32_t pending = kNoValue;  // the last known value, if it is not consumed yet
  TimePoint idle_since{};      // when the last call on it ended, or the last call from it began,
                               // or a call on it was announced (Engine::hold_session())
  uint64_t used = 0;           // a new number after every call or move that changes the session
  bool spare = false;          // whether it is in SpareSessions
  std::optional<int64_t> saved_at;  // the position of the state that is saved outside of the engine
  std::shared_ptr<CallRecord> last_call;  // the record of the last call, if it had a request_id

  // How many values its state has consumed.
  int64_t consumed() const { return position - (pending == kNoValue ? 0 : 1); }

  // Changes the phase by the table above. The process stops if the event cannot happen.
  void apply(SessionEvent event);
  // Whether no call runs on it.
  bool resting() const { return state == SessionPhase::kNew || state == SessionPhase::kIdle; }
};

}  // namespace runnel
