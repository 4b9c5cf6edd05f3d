// How much of its quotas an account uses, over all models, and the quota that changes under its
// running calls. Any thread may call any function.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace runnel {

class AccountUsage {
 public:
  // Counts a call that begins, unless `most` run already.
  bool begin_call(int64_t most);
  void end_call() { calls_.fetch_sub(1, std::memory_order_relaxed); }

  // Counts states that are about to be leased, unless there would be more than `most`.
  bool begin_states(int64_t count, int64_t most);
  void end_state() { states_.fetch_sub(1, std::memory_order_relaxed); }
  int64_t states() const { return states_.load(std::memory_order_relaxed); }

  // The quota of values a second; 0: none. Streams that run keep to a new one at once.
  void set_values_per_second(int64_t most) {
    values_per_second_.store(most, std::memory_order_relaxed);
  }
  int64_t values_per_second() const { return values_per_second_.load(std::memory_order_relaxed); }
  // Notes values that were given or sampled. An account may be ahead by the values of a second.
  void charge(int64_t values, TimePoint now);
  // For how long the account must take no more values; 0 or less: it may.
  Duration behind(TimePoint now) const;

 private:
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> states_{0};
  std::atomic<int64_t> values_per_second_{0};
  std::atomic<int64_t> paid_until_{0};  // nanoseconds of the clock
};

}  // namespace runnel
