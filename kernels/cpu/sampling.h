// Samples a value from one row of a head's output, and computes its log-probability. All arithmetic
// is in double, except for the exponentials of categorical logits. Nothing is allocated.
//
// The results are finite for any weights of a model: a head's output is clamped to +-1e30, and a
// NaN counts as -1e30.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/mixture.h"

namespace runnel::cpu {

// The floats of scratch memory that the functions below need.
constexpr int64_t scratch_floats(const Head& kind) {
  return kind.kind == HeadKind::kCategorical ? 2 * int64_t{kind.values} : 0;
}

// The options for choosing the value of a row.
struct Choice {
  const Sampling& sampling;
  int32_t top_count = 0;  // clamped to the number of values
  Uniforms uniforms;
  // The row's penalties (null: none), their biases, and the slot's recent values. Not used with a
  // mixture of logistics.
  const RowPenalties* penalties = nullptr;
  const LogitBias* biases = nullptr;
  RecentRing recent = {};
  int64_t position = 0;  // of the value
};

// Samples a value from the head's row `logits` [kind.width()]. Sets value, log_prob, top_count and
// the most likely values of the first row of `to`. The log-probabilities are those of score_row().
void sample_row(const Kernels& kernels, const Head& kind, const float* logits, const Choice& choice,
                float* scratch, SampledTo to);

// The natural log p(value), as in training.
float score_row(const Kernels& kernels, const Head& kind, const float* logits, int32_t value,
                float* scratch);

}  // namespace runnel::cpu
