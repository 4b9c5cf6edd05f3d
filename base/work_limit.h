// A limit of the processor time of a thread. So a busy machine completes all work that a quiet one
// completes.
#pragma once

#include <chrono>
#include <ctime>

#include "base/clock.h"

namespace runnel {

class WorkLimit {
 public:
  // Long enough for the texts of a request, and short enough for the requests after it.
  static constexpr std::chrono::seconds kOfRequest{2};

  // This thread may use `most` of processor time from now on.
  explicit WorkLimit(Duration most = kOfRequest)
      : end_(processor_time() + most), next_look_(std::chrono::steady_clock::now() + most) {}

  // Whether the time is used up. To be called on the thread that made the limit.
  bool is_over() {
    const TimePoint now = std::chrono::steady_clock::now();
    if (now < next_look_) return false;
    const Duration left = end_ - processor_time();
    if (left > Duration(0)) next_look_ = now + left;
    return left <= Duration(0);
  }

  // The processor time that this thread has used so far.
  static Duration processor_time() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }

 private:
  Duration end_;
  // The time cannot be used up before, because a thread uses no more time than passes.
  TimePoint next_look_;
};

}  // namespace runnel
