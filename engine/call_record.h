// The outcome so far of a call with a request_id, kept with its session so that a retry gets the
// same stream: first the values that the earlier try has sampled, then the rest. A store keeps it,
// too, so that other servers can answer the retry.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/next_turn.h"
#include "engine/request_digest.h"
#include "engine/token_stream.h"

namespace runnel {

struct CallRecord {
  std::string request_id;
  RequestDigest digest{};               // of the request, which may be far larger than a state
  int64_t position = 0;                 // of the session, before the call
  TurnPlace place = TurnPlace::kStart;  // of the session in its conversation, likewise
  std::vector<StreamValue> values;
  std::vector<TopLogProb> top;       // of all values, in order, top_count each
  int64_t most = 0;                  // values that it may hold
  bool whole = true;                 // it holds every value
  std::optional<Finished> finished;  // where the call ended by itself

  // Lets the record hold as many values, each with `top_log_probs`, as take `bytes`.
  void limit(int64_t bytes, int top_log_probs);
  // Makes room for so many values more, as far as the record may hold them, so that add() allocates
  // nothing. Where memory gives out it may hold no more than it does.
  void reserve(int64_t more, int top_log_probs);
  // Adds a sampled value. One more than the record may hold makes it incomplete: the call cannot be
  // retried by its id, and its client continues by expected_position.
  void add(const Emitted& emitted);
  // The call has ended: returns the room that it has not used. Nothing changes the record after
  // this, unless the engine makes a copy of its own (Admission).
  void shrink();
  // Whether it can be of a call that was given `given` values, may sample `most_values`, each with
  // `top_log_probs`, and left its session at position `end`. One that a store has given may say
  // anything.
  bool leads_to(int64_t end, int64_t given, int64_t most_values, int top_log_probs) const;
};

// A call on a session of a store, as the store and the engine tell each other of it.
struct StoredCall {
  // Not OK: the call was saved before, and is refused like this if nobody has its record.
  Status refusal = {};
  // Then the record as the store has it, if it has one.
  std::shared_ptr<CallRecord> before = {};
  // Once the engine has admitted the call: its record, if the call has a request_id.
  std::weak_ptr<const CallRecord> record = {};
};

}  // namespace runnel
