// Counts how much of its quotas an account uses, over all models. It also holds the quota of values
// a second, which may change while the account's calls run. Any thread may call any function.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace runnel {

class AccountUsage {
 public:
  // Counts a call that begins. False, and nothing is counted, if `most` calls already run.
  bool begin_call(int64_t most);
  void end_call() { calls_.fetch_sub(1, std::memory_order_relaxed); }

  // Counts `count` states that are about to be leased. False, and nothing is counted, if the
  // account would then have more than `most`.
  bool begin_states(int64_t count, int64_t most);
  void end_state() { states_.fetch_sub(1, std::memory_order_relaxed); }
  int64_t states() const { return states_.load(std::memory_order_relaxed); }

  // The quota of values a second; 0: none. A new quota applies at once, also to running streams. If
  // the account must still wait because of the old quota, the time to wait is computed again with
  // the new one.
  void set_values_per_second(int64_t most, TimePoint now);
  int64_t values_per_second() const { return values_per_second_.load(std::memory_order_relaxed); }
  // Counts values that were given or sampled. An account that was idle may take the values of one
  // second at once.
  void charge(int64_t values, TimePoint now);
  // How long the account must wait before it may take more values. 0 or less: it need not wait.
  Duration behind(TimePoint now) const;

 private:
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> states_{0};
  std::atomic<int64_t> values_per_second_{0};
  std::atomic<int64_t> paid_until_{0};  // nanoseconds of the clock
};

}  // namespace runnel
