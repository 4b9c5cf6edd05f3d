// The outcome so far of a call with a request_id. It is kept with the session, so that a retry gets
// the same stream: first the values that the earlier try has sampled, then the rest. A store keeps
// the record, too, so that other servers can answer the retry.
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
  int64_t position = 0;                 // the session's position before the call
  TurnPlace place = TurnPlace::kStart;  // the session's place in its conversation before the call
  std::vector<StreamValue> values;
  std::vector<TopLogProb> top;       // of all values, in order; each value has top_count of them
  int64_t most = 0;                  // the maximum number of values in the record
  bool whole = true;                 // whether it holds all values of the call
  std::optional<Finished> finished;  // how the call ended; none: it runs, or was ended early

  // Limits the record to the values that fit in `bytes`, each with `top_log_probs`.
  void limit(int64_t bytes, int top_log_probs);
  // Reserves memory for `more` values, within the limit, so that add() allocates nothing. If there
  // is not enough memory, the limit becomes the present number of values.
  void reserve(int64_t more, int top_log_probs);
  // Adds a sampled value. If the record is full, it becomes incomplete instead: the call cannot be
  // retried by its id, and its client must continue with expected_position.
  void add(const Emitted& emitted);
  // Frees reserved memory that the call, which has ended, did not use. After this the record never
  // changes. To continue the call, the engine copies it (Admission).
  void shrink();
  // Whether the record is plausible for a call that was given `given` values, may sample
  // `most_values`, each with `top_log_probs`, and left its session at position `end`. A record that
  // comes from a store may be wrong in any way.
  bool leads_to(int64_t end, int64_t given, int64_t most_values, int top_log_probs) const;
};

// A call on a session of a store: the information that the store and the engine exchange about it.
struct StoredCall {
  // Not OK: the call was saved before. It is refused with this status if there is no record of it.
  Status refusal = {};
  // The record of the call that was saved before, if the store has it.
  std::shared_ptr<CallRecord> before = {};
  // The record of this call, once the engine has admitted it, if the call has a request_id.
  std::weak_ptr<const CallRecord> record = {};
};

}  // namespace runnel
