// One sequence and its life. Every running call works on a session: a named one from the table, or
// an anonymous one of its own.
//
//              kFeed       kSample      kMove    kPause   kEnd
//   new        prompting   generating   moving   -        ended
//   prompting  -           generating   -        idle     ended
//   generating -           -            -        idle     ended
//   moving     -           -            -        idle     ended
//   idle       prompting   generating   moving   -        ended
//   ended      -           -            -        -        -
//
// A call that starts from a session without going on in it copies its state: the session keeps its
// own, and its idle time begins again.
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
  kMove,    // its state is copied, in or out
  kPause,   // the call has ended; the session stays
  kEnd,     // its slot goes back to the pool
};

const char* session_phase_name(SessionPhase state);

// The table above; none where the event cannot happen.
std::optional<SessionPhase> next_state(SessionPhase state, SessionEvent event);

struct Session {
  SessionKey key;
  std::string account;                  // whose share its slot counts against
  std::shared_ptr<const void> counted;  // against the quota of its account, while this lives
  bool stored = false;                  // read-only: calls start from it alone
  SlotId slot = -1;
  SessionPhase state = SessionPhase::kNew;
  int64_t position = 0;        // of the next value: the number of known values
  int32_t pending = kNoValue;  // the last known value, while it is not consumed
  TimePoint idle_since{};      // when the last call on it ended, or the last call from it began
  uint64_t used = 0;           // another number with every call and move that changes it
  bool spare = false;          // in SpareSessions
  std::optional<int64_t> saved_at;  // the position of a state that is outside of the engine, too
  std::shared_ptr<CallRecord> last_call;  // of the last call, where it had a request_id

  // Values that its state has consumed.
  int64_t consumed() const { return position - (pending == kNoValue ? 0 : 1); }

  // Follows the table; an event that cannot happen stops the process.
  void apply(SessionEvent event);
  // No call runs on it.
  bool resting() const { return state == SessionPhase::kNew || state == SessionPhase::kIdle; }
};

}  // namespace runnel
