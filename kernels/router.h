// Chooses the experts of an input (Experts).
#pragma once

#include <cstdint>

#include "base/limits.h"
#include "kernels/device.h"
#include "kernels/scalar_math.h"

namespace runnel {

// Chooses the `count` largest of `scores` [experts], of equal ones the first. Writes their indices
// to `chosen` [count] in ascending order, and the softmax of their scores to `shares` [count]. It
// is computed in double and rounded once. A NaN counts as less than every number.
RUNNEL_DEVICE constexpr void choose_experts(const float* scores, int experts, int count,
                                            int32_t* chosen, float* shares) {
  const auto is_better = [&](int32_t a, int32_t b) {
    return scores[a] > scores[b] || (scores[b] != scores[b] && scores[a] == scores[a]);
  };
  // Best first, and then by index.
  int size = 0;
  for (int32_t e = 0; e < experts; ++e) {
    if (size == count && !is_better(e, chosen[count - 1])) continue;
    int at = size < count ? size++ : count - 1;
    for (; at > 0 && is_better(e, chosen[at - 1]); --at) chosen[at] = chosen[at - 1];
    chosen[at] = e;
  }
  const double best = scores[chosen[0]];
  for (int i = 1; i < count; ++i) {
    const int32_t e = chosen[i];
    int at = i;
    for (; at > 0 && chosen[at - 1] > e; --at) chosen[at] = chosen[at - 1];
    chosen[at] = e;
  }
  double sum = 0.0;
  for (int i = 0; i < count; ++i) sum += exp_of(scores[chosen[i]] - best);
  for (int i = 0; i < count; ++i) {
    shares[i] = static_cast<float>(exp_of(scores[chosen[i]] - best) / sum);
  }
}

}  // namespace runnel
