// Samples a value from one row of a head's output, and computes its log-probability.
// Everything is in double but the exponentials of categorical logits, and nothing is allocated.
//
// Whatever the weights of a model lead to, the numbers that come out are finite: a head's output
// counts as at most 1e30 in size, and as -1e30 where it is not a number.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/mixture.h"

namespace runnel::cpu {

// Floats that the functions below need to work in.
constexpr int64_t scratch_floats(const Head& kind) {
  return kind.kind == HeadKind::kCategorical ? 2 * int64_t{kind.values} : 0;
}

// How the value of a row is chosen.
struct Choice {
  const Sampling& sampling;
  int32_t top_count = 0;  // clamped to what there is
  Uniforms uniforms;
  // The row's penalties, null where it has none, their biases, and the slot's recent values. Not of
  // logistics.
  const RowPenalties* penalties = nullptr;
  const LogitBias* biases = nullptr;
  RecentRing recent = {};
  int64_t position = 0;  // of the value
};

// Samples a value from the head's row `logits` [kind.width()]. Sets value, log_prob and top_count
// of the first row of `to`, and its most likely values; log-probabilities are those of score_row().
void sample_row(const Kernels& kernels, const Head& kind, const float* logits, const Choice& choice,
                float* scratch, SampledTo to);

// log p(value), natural, the training definition.
float score_row(const Kernels& kernels, const Head& kind, const float* logits, int32_t value,
                float* scratch);

}  // namespace runnel::cpu
