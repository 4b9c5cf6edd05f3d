// The events of a call as plain data: a door encodes them for its wire.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/token_stream.h"

namespace runnel {

// Values of one sample at consecutive positions.
struct ValueRun {
  int sample = 0;
  int64_t position = 0;  // of values[0]
  std::vector<int32_t> values = {};
  std::vector<float> log_probs = {};     // natural log, one per value
  std::vector<int32_t> top_counts = {};  // one per value; empty where the call asks for none
  std::vector<TopLogProb> top = {};      // of all values, in order
  std::string text = {};                 // the characters that these values complete; valid UTF-8
  // One per value where there is a tokenizer: bytes of `text` that are complete with it.
  std::vector<int32_t> text_ends = {};
};

// Values in the order in which they were sampled. The runs are valid while the event is written.
struct SampledValues {
  std::span<const ValueRun> runs;
};

// A Generate call gives Started, then SampledValues, then one Finished for each sample. One that
// waits gives Queued before.
using GenerateEvent = std::variant<Queued, Started, SampledValues, Finished>;

// Log-probabilities of consecutive values. They are valid while the event is written.
struct ScoredValues {
  int64_t position = 0;  // of log_probs[0]
  std::span<const float> log_probs;
};

struct ScoreTotal {
  int64_t values = 0;     // scored
  double log_prob = 0.0;  // their sum
  std::string numerics;
};

// A Score call gives ScoredValues for each chunk, at least one, and ScoreTotal at the end.
using ScoreEvent = std::variant<ScoredValues, ScoreTotal>;

}  // namespace runnel
