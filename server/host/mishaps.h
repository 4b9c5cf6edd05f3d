// Catches exceptions, such as std::bad_alloc, on threads that many calls share. An exception ends
// the piece of work that threw it, but neither the thread nor the process.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

#include "base/clock.h"
#include "server/host/event_log.h"

namespace runnel {

class Mishaps {
 public:
  // `log` and `clock` must outlive the object.
  explicit Mishaps(const EventLog& log, const Clock& clock = real_clock())
      : log_(log), clock_(clock) {}
  Mishaps(const Mishaps&) = delete;
  Mishaps& operator=(const Mishaps&) = delete;

  // Runs `work`. Exceptions are counted, and logged at most once a second.
  template <typename Work>
  void contain(const Work& work) noexcept {
    try {
      work();
    } catch (const std::exception& error) {
      note(error);
    }
  }

 private:
  void note(const std::exception& error) noexcept;

  const EventLog& log_;
  const Clock& clock_;
  std::mutex mutex_;
  TimePoint next_{};      // when an exception may be logged again
  int64_t unlogged_ = 0;  // exceptions since the last logged one
};

}  // namespace runnel
