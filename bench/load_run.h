// One run of a load against a server. Either each call starts when it is due, whatever happened to
// earlier calls, or a fixed number of calls runs at a time.
//
// Every call is a reactor on gRPC's own threads, so that thousands of open calls need no thread
// each. The thread that calls run_load_once() only starts calls and resumes stalled ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/load_figures.h"
#include "bench/load_plan.h"
#include "client/connections.h"

namespace runnel {

struct LoadRunOptions {
  std::string model;
  int64_t vocabulary = 0;
  CallMix traffic;
  double rate = 0;                 // calls per second
  int concurrency = 0;             // if `rate` is 0: the number of open calls
  Duration warm_up{}, duration{};  // the figures are of `duration` alone
  Duration grace{};                // how long calls that are open after `duration` may run
  Duration stall{};                // how long a call that stalls does not read
  int most_open = 0;               // while this many are open, calls that are due are dropped
  int values_per_message = 0;      // maximum; 0: the server's default
  // Seconds that a call may wait for a state. None: the server's default.
  std::optional<double> max_queue_time;
};

struct RunProgress {
  double seconds = 0, total_seconds = 0;
  int64_t values = 0;

  // The number of values at the end of the run if their rate stays the same; 0: not known yet.
  int64_t expected_values() const {
    if (seconds <= 0) return 0;
    const double expected = static_cast<double>(values) * total_seconds / seconds;
    return std::max<int64_t>(std::llround(std::min(expected, 1e18)), values);
  }
};

// Both functions are called after each event of the run, and at least ten times a second.
struct LoadWatch {
  std::function<bool()> stopped;  // true: all calls are cancelled and the run ends
  std::function<void(const RunProgress&)> progress;
};

// Runs for the warm-up and the duration, and then for at most the grace time and a few seconds.
// Calls use the connections in turn.
LoadFigures run_load_once(const Stubs& stubs, const LoadRunOptions& options,
                          const LoadWatch& watch);

}  // namespace runnel
