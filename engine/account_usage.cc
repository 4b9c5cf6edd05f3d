#include "engine/account_usage.h"

#include <algorithm>

namespace runnel {
namespace {

constexpr int64_t kSecond = Duration(std::chrono::seconds(1)).count();

// Adds to a counter, unless the sum would exceed `most`.
bool add(std::atomic<int64_t>& counter, int64_t count, int64_t most) {
  int64_t before = counter.load(std::memory_order_relaxed);
  while (before <= most - count) {
    const int64_t after = before + count;
    if (counter.compare_exchange_weak(before, after, std::memory_order_relaxed)) return true;
  }
  return false;
}

}  // namespace

bool AccountUsage::begin_call(int64_t most) { return add(calls_, 1, most); }

bool AccountUsage::begin_states(int64_t count, int64_t most) { return add(states_, count, most); }

void AccountUsage::set_values_per_second(int64_t most, TimePoint now) {
  const int64_t before = values_per_second_.exchange(most, std::memory_order_relaxed);
  if (before == most || before == 0) return;
  const int64_t at = now.time_since_epoch().count();
  int64_t paid = paid_until_.load(std::memory_order_relaxed);
  while (paid > at) {
    const int64_t wait = most == 0 ? 0 : (paid - at) * before / most;
    if (paid_until_.compare_exchange_weak(paid, at + wait, std::memory_order_relaxed)) return;
  }
}

void AccountUsage::charge(int64_t values, TimePoint now) {
  const int64_t per_second = values_per_second();
  if (per_second == 0) return;
  const int64_t cost = values * kSecond / per_second;
  const int64_t earliest = now.time_since_epoch().count() - kSecond;
  int64_t before = paid_until_.load(std::memory_order_relaxed);
  while (!paid_until_.compare_exchange_weak(before, std::max(before, earliest) + cost,
                                            std::memory_order_relaxed)) {
  }
}

Duration AccountUsage::behind(TimePoint now) const {
  if (values_per_second() == 0) return Duration(0);
  return TimePoint(Duration(paid_until_.load(std::memory_order_relaxed))) - now;
}

}  // namespace runnel
