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
  std::vector<int32_t> top_counts = {};  // one per value; empty if the call asks for none
  std::vector<TopLogProb> top = {};      // of all values, in order
  std::string text = {};                 // the characters that these values complete; valid UTF-8
  // One per value if there is a tokenizer: how many bytes of `text` are complete after the value.
  std::vector<int32_t> text_ends = {};
};

// Values in the order in which they were sampled. The runs are valid while the event is written.
struct SampledValues {
  std::span<const ValueRun> runs;
};

// The events of a Generate call: Queued if it waits, then Started, then SampledValues, and one
// Finished for each sample.
using GenerateEvent = std::variant<Queued, Started, SampledValues, Finished>;

// Log-probabilities of consecutive values. They are valid while the event is written.
struct ScoredValues {
  int64_t position = 0;  // of log_probs[0]
  std::span<const float> log_probs;
};

struct ScoreTotal {
  int64_t values = 0;     // how many values were scored
  double log_prob = 0.0;  // the sum of their log-probabilities
  std::string numerics;
};

// The events of a Score call: one or more ScoredValues for each chunk, and ScoreTotal at the end.
using ScoreEvent = std::variant<ScoredValues, ScoreTotal>;

}  // namespace runnel
