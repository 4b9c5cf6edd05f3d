// The time that a turn of the scheduler uses. The clock is read when a turn begins and when a
// launch has been collected. Everything in between gets the same time.
#pragma once

#include "base/clock.h"

namespace runnel {

class TurnClock {
 public:
  // `clock` must outlive the object.
  explicit TurnClock(const Clock& clock) : clock_(clock) {}

  TimePoint read() { return now_ = clock_.now(); }
  TimePoint now() const { return now_; }

 private:
  const Clock& clock_;
  TimePoint now_{};
};

}  // namespace runnel
