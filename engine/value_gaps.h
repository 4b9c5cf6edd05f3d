// Counts the times between two values of a sample. Consecutive equal times, as in a step, are
// counted together.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/metrics.h"

namespace runnel {

class ValueGaps {
 public:
  // `counted` must outlive the object.
  explicit ValueGaps(Histogram& counted) : counted_(counted) {}

  void note(Duration gap) {
    if (gap != gap_) count();
    gap_ = gap;
    ++times_;
  }
  // Adds the noted times to the histogram.
  void count() {
    if (times_ > 0) counted_.observe(gap_, times_);
    times_ = 0;
  }

 private:
  Histogram& counted_;
  Duration gap_{0};
  int64_t times_ = 0;
};

}  // namespace runnel
