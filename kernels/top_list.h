// Collects the most likely values, most likely first; of equally likely ones, the lower value
// first.
#pragma once

#include <cstdint>

#include "kernels/control.h"

namespace runnel {

class TopList {
 public:
  // Keeps the best `room` > 0 in `top`.
  constexpr TopList(TopLogProb* top, int room) : top_(top), room_(room) {}

  // Offers a value. Values must be offered in ascending order.
  constexpr void offer(int32_t value, float log_prob) {
    if (size_ == room_ && !(log_prob > top_[size_ - 1].log_prob)) return;
    int at = size_ < room_ ? size_++ : size_ - 1;
    for (; at > 0 && log_prob > top_[at - 1].log_prob; --at) top_[at] = top_[at - 1];
    top_[at] = {value, log_prob};
  }

  constexpr int size() const { return size_; }

 private:
  TopLogProb* top_;
  int room_;
  int size_ = 0;
};

}  // namespace runnel
