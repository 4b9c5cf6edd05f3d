// The controls of a slot, which let it step without the host, and the results of a step.
// Plain data: the same bytes on the host and on a device.
#pragma once

#include <cstdint>

#include "base/limits.h"
#include "kernels/device.h"

namespace runnel {

// How a value is chosen from the head's distribution. Log-probabilities do not depend on it.
// Filters apply to the tempered distribution in the order top_k, top_p, min_p. Each applies to the
// values that the one before has kept, so top_p is a share of the mass that top_k leaves. Of
// equally likely values, the lower one comes first. A mixture of logistics uses only temperature
// and greedy.
struct Sampling {
  float temperature = 1.0F;  // > 0: logits / T, and for logistics also scale * T
  int32_t top_k = 0;         // keep the k most likely values; 0: all
  float top_p = 1.0F;        // keep as few top values as reach the mass top_p; 1: all
  float min_p = 0.0F;   // keep values at least min_p times as likely as the most likely; 0: all
  bool greedy = false;  // the most likely value (for logistics: the mode of the 256 scoring bins)

  friend bool operator==(const Sampling&, const Sampling&) = default;
};

inline constexpr int32_t kNoValue = -1;

struct Control {
  uint64_t seed = 0;
  uint32_t stream = 0;         // the index of the sample in its call
  int32_t pending = kNoValue;  // known but not yet consumed; kNoValue only before a first value
  int64_t position = 0;        // values consumed, and so the position of the pending value
  int64_t remaining = 0;       // values still to sample; at 0 the row freezes
  Sampling sampling;
  int32_t top_log_probs =
      0;  // how many of the most likely values to report, at most kMaxTopLogProbs
};

struct TopLogProb {
  int32_t value;
  float log_prob;
};

// One value that a step sampled. It is small, because a device writes one to the host for every row
// and step.
struct Sampled {
  int32_t row = -1;  // of the batch; -1: nothing (a frozen row)
  int32_t value = kNoValue;
  int64_t position = 0;   // of `value` in its sequence
  float log_prob = 0.0F;  // natural log, as scoring computes it
  int32_t top_count = 0;  // number of most likely values, which are stored separately
};
static_assert(sizeof(Sampled) == 24);

// The place for a step's results. The value of row r goes to rows[r]. If the row requests the most
// likely values, they go to top[] from index r * kMaxTopLogProbs on, most likely first; of equally
// likely ones, the lower value first.
struct SampledTo {
  Sampled* rows;
  TopLogProb* top;

  // The place for the rows from `first` on.
  RUNNEL_DEVICE SampledTo from(int64_t first) const {
    return {rows + first, top + first * kMaxTopLogProbs};
  }
};

}  // namespace runnel
