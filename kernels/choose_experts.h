// Chooses the experts of an input.
#pragma once

#include <cstdint>

#include "base/limits.h"
#include "kernels/device.h"
#include "kernels/experts.h"
#include "kernels/scalar_math.h"

namespace runnel {

// The number by which experts are ranked. It is not a NaN, and not -0.
RUNNEL_DEVICE constexpr float choice_key(const Router& router, const float* scores,
                                         int32_t expert) {
  float key = scores[expert];
  if (router.kind == RouterKind::kSigmoid) key = static_cast<float>(sigmoid(key));
  if (router.bias != nullptr) key += router.bias[expert];
  constexpr uint32_t kLeast = 0xff800000;  // -infinity
  return key == key ? key + 0.0F : bit_cast<float>(kLeast);
}

// Keeps the experts with the largest keys. If keys are equal, the expert that was offered first
// wins.
class BestExperts {
 public:
  // Keeps the best `room` > 0 in `experts`, best first.
  constexpr BestExperts(int32_t* experts, int room) : experts_(experts), room_(room) {}

  // Experts must be offered in ascending order.
  constexpr void offer(int32_t expert, float key) {
    if (size_ == room_ && !(key > keys_[size_ - 1])) return;
    int at = size_ < room_ ? size_++ : size_ - 1;
    for (; at > 0 && key > keys_[at - 1]; --at) {
      experts_[at] = experts_[at - 1];
      keys_[at] = keys_[at - 1];
    }
    experts_[at] = expert;
    keys_[at] = key;
  }

 private:
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

// `used` [router.used()] begins with the chosen experts, the best one first. Sorts them, adds the
// shared expert, and writes the shares of all. Shares are computed in double and rounded once.
RUNNEL_DEVICE constexpr void write_shares(const Router& router, const float* scores, int experts,
                                          int32_t* used, float* shares) {
  const bool is_softmax = router.kind == RouterKind::kSoftmax;
  const double most = scores[used[0]];
  sort_ascending(used, router.chosen);
  const auto weight = [&](int i) {
    const double score = scores[used[i]];
    return is_softmax ? exp_of(score - most) : double{static_cast<float>(sigmoid(score))};
  };
  double sum = is_softmax ? 0.0 : double{router.eps};
  for (int i = 0; i < router.chosen; ++i) sum += weight(i);
  for (int i = 0; i < router.chosen; ++i) shares[i] = static_cast<float>(weight(i) / sum);
  if (!router.shared) return;
  used[router.chosen] = experts - 1;
  shares[router.chosen] = static_cast<float>(sigmoid(scores[experts - 1]));
}

// Writes the experts that an input with these scores [experts] uses to `used` in ascending order,
// and their shares to `shares`.
inline void choose_experts(const Router& router, const float* scores, int experts, int32_t* used,
                           float* shares) {
  BestExperts best(used, router.chosen);
  for (int32_t e = 0; e < router.choices(experts); ++e) {
    best.offer(e, choice_key(router, scores, e));
  }
  write_shares(router, scores, experts, used, shares);
}

}  // namespace runnel
