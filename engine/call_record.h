// What a call with a request_id has come to, kept with its session so that a retry gets the same
// stream: what the first try was sent again, and then the rest.
#pragma once

#include <optional>
#include <vector>

#include "engine/request.h"
#include "engine/token_stream.h"

namespace runnel {

// A record holds so many values; a call that samples more cannot be asked again (its client goes on
// by expected_position).
inline constexpr int64_t kMaxRecordedValues = 65536;

struct CallRecord {
  GenerateRequest request;
  int64_t position = 0;  // where the session stood
  std::vector<StreamValue> values;
  std::vector<TopLogProb> top;       // of all values, in order, top_count each
  bool whole = true;                 // every value is in it
  std::optional<Finished> finished;  // where the call ended by itself

  // Adds a sampled value. Allocates nothing: reserved for the whole call.
  void add(const Emitted& emitted);
};

}  // namespace runnel
