// Exceptions on a thread that many calls share, such as std::bad_alloc where memory gives out: one
// ends the piece of work that threw it, and neither the thread nor the process.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

#include "base/clock.h"
#include "server/host/event_log.h"

namespace runnel {

class Mishaps {
 public:
  // `log` and `clock` outlive it.
  explicit Mishaps(const EventLog& log, const Clock& clock = real_clock())
      : log_(log), clock_(clock) {}
  Mishaps(const Mishaps&) = delete;
  Mishaps& operator=(const Mishaps&) = delete;

  // Does `work`. Exceptions are counted, and logged at most once a second.
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
  TimePoint next_{};      // when one is logged again
  int64_t unlogged_ = 0;  // since the last one
};

}  // namespace runnel
