// A clock that tests can stop and move. The engine and the server ask a Clock for the time. Only
// waits of threads and sockets, limits of work (base/work_limit.h), certificates, and measurements
// of work use the machine's time directly.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace runnel {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  // A clock that follows the machine's clocks.
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  // A virtual clock that starts at `start`. Only advance() moves it.
  explicit Clock(TimePoint start) : virtual_ns_(start.time_since_epoch().count()) {}

  TimePoint now() const {
    const int64_t ns = virtual_ns_.load(std::memory_order_acquire);
    return ns == kReal ? std::chrono::steady_clock::now() : TimePoint(Duration(ns));
  }

  // The time of day in seconds since 1970. The machine's time of day can be changed by hand. On a
  // virtual clock it is the same time as now().
  int64_t unix_time() const { return unix_ms() / 1000; }
  // The time of day in milliseconds since 1970.
  int64_t unix_ms() const {
    const int64_t ns = virtual_ns_.load(std::memory_order_acquire);
    const Duration since =
        ns == kReal ? std::chrono::system_clock::now().time_since_epoch() : Duration(ns);
    return since / std::chrono::milliseconds(1);
  }

  bool is_virtual() const { return virtual_ns_.load(std::memory_order_acquire) != kReal; }

  // Moves a virtual clock forward.
  void advance(Duration by) { virtual_ns_.fetch_add(by.count(), std::memory_order_acq_rel); }

 private:
  static constexpr int64_t kReal = -1;
  std::atomic<int64_t> virtual_ns_{kReal};
};

// The machine's clock. It is used if the caller gives no other.
inline const Clock& real_clock() {
  static const Clock kClock;
  return kClock;
}

}  // namespace runnel
