// Time that tests can hold still: the engine asks a Clock, and so does the server, except for how
// long work and sockets take.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace runnel {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  // The machine's clocks.
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  // Makes this clock virtual from `start` on: from here only advance() moves it.
  explicit Clock(TimePoint start) : virtual_ns_(start.time_since_epoch().count()) {}

  TimePoint now() const {
    const int64_t ns = virtual_ns_.load(std::memory_order_acquire);
    return ns == kReal ? std::chrono::steady_clock::now() : TimePoint(Duration(ns));
  }

  // Seconds since 1970: the machine's time of day, which people can set. A virtual clock counts
  // both now() and these from 1970.
  int64_t unix_time() const { return unix_ms() / 1000; }
  // The same in milliseconds.
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

// The machine's clock. It is the default where the caller gives no other.
inline const Clock& real_clock() {
  static const Clock kClock;
  return kClock;
}

}  // namespace runnel
