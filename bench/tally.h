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

// calls * samples sequences, which start together and run concurrently.
struct Work {
  int calls = 1;       // each on its own stream
  int samples = 1;     // sequences of each call
  int64_t values = 1;  // of each sequence, including a first value that the spec defines
  uint64_t seed = 1;   // of the first call; each further call adds 1

  int sequences() const { return calls * samples; }
  int64_t all_values() const { return int64_t{sequences()} * values; }
};

// Values that are sent together: enough for a low cost per value, few enough for a steady stream.
inline constexpr int kValuesTogether = 64;
inline constexpr auto kLongestWait = std::chrono::seconds(1);

// Called about ten times a second with the number of values that have arrived.
using OnValues = std::function<void(int64_t values)>;

// Counts the values of the calls of one measurement. The time runs from construction to the end of
// the last call.
class Tally {
 public:
  explicit Tally(const Work& work);

  // From any thread.
  void add(int64_t values) { values_.fetch_add(values, std::memory_order_relaxed); }
  // To be called once for each call, when it has ended.
  void end(const Status& status);

  // Waits until every call has ended, and returns the seconds. Not OK if a call failed, or if the
  // number of values is not Work::all_values().
  Result<double> wait(const OnValues& on_values);

 private:
  const Work work_;
  const TimePoint start_;
  std::atomic<int64_t> values_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  int open_;
  TimePoint ended_{};
  Status failed_;  // the first status that was not OK
};

}  // namespace runnel
