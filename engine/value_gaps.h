// Counts the times between two values of a sample. Most of a step are equal, and counted together.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/metrics.h"

namespace runnel {

class ValueGaps {
 public:
  // `counted` outlives it.
  explicit ValueGaps(Histogram& counted) : counted_(counted) {}

  void note(Duration gap) {
    if (gap != gap_) count();
    gap_ = gap;
    ++times_;
  }
  // Counts what has been noted.
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
