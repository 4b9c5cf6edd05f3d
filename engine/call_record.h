// The outcome so far of a call with a request_id, kept with its session so that a retry gets the
// same stream: first the values that the earlier try has sampled, then the rest.
#pragma once

#include <optional>
#include <vector>

#include "engine/request.h"
#include "engine/token_stream.h"

namespace runnel {

// The most values that a record holds. A call that samples more cannot be retried by its id; its
// client goes on by expected_position.
inline constexpr int64_t kMaxRecordedValues = 65536;

struct CallRecord {
  GenerateRequest request;
  int64_t position = 0;  // where the session stood
  std::vector<StreamValue> values;
  std::vector<TopLogProb> top;       // of all values, in order, top_count each
  bool whole = true;                 // it holds every value
  std::optional<Finished> finished;  // where the call ended by itself

  // Adds a sampled value. Allocates nothing: memory is reserved for the whole call.
  void add(const Emitted& emitted);
};

}  // namespace runnel
