#include "engine/account_usage.h"

#include <algorithm>

namespace runnel {
namespace {

constexpr int64_t kSecond = Duration(std::chrono::seconds(1)).count();

}  // namespace

bool AccountUsage::begin_call(int64_t most) {
  int64_t running = calls_.load(std::memory_order_relaxed);
  while (running < most) {
    if (calls_.compare_exchange_weak(running, running + 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

void AccountUsage::charge(int64_t values, int64_t per_second, TimePoint now) {
  const int64_t cost = values * kSecond / per_second;
  const int64_t earliest = now.time_since_epoch().count() - kSecond;
  int64_t before = paid_until_.load(std::memory_order_relaxed);
  while (!paid_until_.compare_exchange_weak(before, std::max(before, earliest) + cost,
                                            std::memory_order_relaxed)) {
  }
}

}  // namespace runnel
