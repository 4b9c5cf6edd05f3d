// Chooses the experts of an input.
#pragma once

#include <cstdint>

#include "base/limits.h"
#include "kernels/device.h"
#include "kernels/experts.h"
#include "kernels/scalar_math.h"

namespace runnel {

// Keeps the experts with the largest keys: of equal keys the first, and NaN below every number.
class BestExperts {
 public:
  // Keeps the best `room` > 0 in `experts`, best first.
  RUNNEL_DEVICE constexpr BestExperts(int32_t* experts, int room)
      : experts_(experts), room_(room) {}

  // Experts must be offered in ascending order.
  RUNNEL_DEVICE constexpr void offer(int32_t expert, float key) {
    if (size_ == room_ && !is_better(key, keys_[size_ - 1])) return;
    int at = size_ < room_ ? size_++ : size_ - 1;
    for (; at > 0 && is_better(key, keys_[at - 1]); --at) {
      experts_[at] = experts_[at - 1];
      keys_[at] = keys_[at - 1];
    }
    experts_[at] = expert;
    keys_[at] = key;
  }

 private:
  RUNNEL_DEVICE static constexpr bool is_better(float a, float b) {
    return a > b || (b != b && a == a);
  }

  int32_t* const experts_;
  const int room_;
  int size_ = 0;
  float keys_[kMaxChosenExperts] = {};
};

RUNNEL_DEVICE constexpr void sort_ascending(int32_t* numbers, int count) {
  for (int i = 1; i < count; ++i) {
    const int32_t number = numbers[i];
    int at = i;
    for (; at > 0 && numbers[at - 1] > number; --at) numbers[at] = numbers[at - 1];
    numbers[at] = number;
  }
}

// Writes the experts that an input with these scores [experts] uses to `used` [router.used()] in
// ascending order, and their shares to `shares`. Shares are computed in double and rounded once.
RUNNEL_DEVICE constexpr void choose_experts(const Router& router, const float* scores, int experts,
                                            int32_t* used, float* shares) {
  const bool is_softmax = router.kind == RouterKind::kSoftmax;
  const int count = router.chosen;
  const int choices = router.shared ? experts - 1 : experts;
  BestExperts best(used, count);
  for (int32_t e = 0; e < choices; ++e) {
    const float key = is_softmax ? scores[e] : static_cast<float>(sigmoid(scores[e]));
    best.offer(e, router.bias != nullptr ? key + router.bias[e] : key);
  }
  const double most = scores[used[0]];
  sort_ascending(used, count);
  const auto weight = [&](int i) {
    const double score = scores[used[i]];
    return is_softmax ? exp_of(score - most) : double{static_cast<float>(sigmoid(score))};
  };
  double sum = is_softmax ? 0.0 : double{router.eps};
  for (int i = 0; i < count; ++i) sum += weight(i);
  for (int i = 0; i < count; ++i) shares[i] = static_cast<float>(weight(i) / sum);
  if (!router.shared) return;
  used[count] = choices;
  shares[count] = static_cast<float>(sigmoid(scores[choices]));
}

}  // namespace runnel
