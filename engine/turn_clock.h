// The time as one turn of the scheduler sees it. It is read when a turn begins and when a launch
// has been collected, so that everything in between happens at the same time.
#pragma once

#include "base/clock.h"

namespace runnel {

class TurnClock {
 public:
  // `clock` outlives it.
  explicit TurnClock(const Clock& clock) : clock_(clock) {}

  TimePoint read() { return now_ = clock_.now(); }
  TimePoint now() const { return now_; }

 private:
  const Clock& clock_;
  TimePoint now_{};
};

}  // namespace runnel
