// One run of a load against a server: calls that come when they are due, whatever became of those
// before them, or a fixed number of calls at once.
//
// Every call is a reactor on gRPC's own threads, so that thousands of open calls need no thread
// each. The thread that calls run_load_once() only makes calls and wakes stalled ones.
#pragma once

#include <functional>
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
  int concurrency = 0;             // where `rate` is 0: calls open at any time
  Duration warm_up{}, duration{};  // the figures are of `duration` alone
  Duration grace{};                // for calls that are open when no more are made
  Duration stall{};                // for which one that stalls does not read
  int most_open = 0;               // while this many are open, calls that are due are dropped
  int values_per_message = 0;      // at most; 0: as the server likes
  double max_queue_time = 0;       // seconds that a call may wait for a state
};

struct RunProgress {
  double seconds = 0, total_seconds = 0;
  int64_t values = 0;
};

// Asked and told about ten times a second.
struct LoadWatch {
  std::function<bool()> stopped;  // true: all calls are cancelled and the run ends
  std::function<void(const RunProgress&)> progress;
};

// Runs to the end: warm-up, duration, and no more than grace and a few seconds. Calls take
// the connections in turn.
LoadFigures run_load_once(const Stubs& stubs, const LoadRunOptions& options,
                          const LoadWatch& watch);

}  // namespace runnel
