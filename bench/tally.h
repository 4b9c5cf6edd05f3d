// The calls of one measurement, and their outcomes so far.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/status.h"

namespace runnel {

// Sequences that start together and run side by side: calls * samples of them.
struct Work {
  int calls = 1;       // each a stream of its own
  int samples = 1;     // sequences of each call
  int64_t values = 1;  // of each sequence, a first value that the spec gives included
  uint64_t seed = 1;   // of the first call; the others count on

  int sequences() const { return calls * samples; }
  int64_t all_values() const { return int64_t{sequences()} * values; }
};

// Values that are sent together: enough for a stream to cost little, few enough to flow.
inline constexpr int kValuesTogether = 64;
inline constexpr auto kLongestWait = std::chrono::seconds(1);

// Told how many values have come, about ten times a second.
using OnValues = std::function<void(int64_t values)>;

// Counts what the calls of one measurement bring. The clock runs from its making to the end of the
// last call.
class Tally {
 public:
  explicit Tally(const Work& work);

  // From any thread.
  void add(int64_t values) { values_.fetch_add(values, std::memory_order_relaxed); }
  // One call has ended; each does so once.
  void end(const Status& status);

  // Waits for the end of every call. Seconds; not OK when a call failed, or when the values that
  // came are not those that were asked for.
  Result<double> wait(const OnValues& on_values);

 private:
  const Work work_;
  const TimePoint start_;
  std::atomic<int64_t> values_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  int open_;
  TimePoint ended_{};
  Status failed_;  // the first that was not OK
};

}  // namespace runnel
