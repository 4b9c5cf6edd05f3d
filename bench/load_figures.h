// The results of one run of a load, as JSON and as text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/duration_histogram.h"

namespace runnel {

struct Refusals {
  int64_t count = 0;
  DurationHistogram latency;  // from when the call was due to its status
};

// Calls are counted where they were due within the measured time, whenever they ended; values,
// messages and gaps where they came within it.
struct LoadFigures {
  double seconds = 0;   // measured
  double multiple = 0;  // of the capacity; 0: the rate was given
  double rate = 0;      // calls due per second, on average; 0: as many at once as `concurrency`
  int64_t concurrency = 0;

  int64_t due = 0;
  int64_t completed = 0;                    // in full
  int64_t cancelled = 0;                    // by us, as planned
  int64_t stalled = 0;                      // of all: not read for a while, as planned
  int64_t unfinished = 0;                   // had not ended after the grace period
  int64_t dropped = 0;                      // never made: too many were open
  int64_t waited = 0;                       // of all: for a state, and were told so
  std::map<std::string, Refusals> refused;  // before any event, by status
  std::map<std::string, int64_t>
      failed;  // later, by status; "SHORT": ended well with too few values

  int64_t values = 0, messages = 0;  // of all calls; messages with values alone
  int64_t good_values = 0;           // of calls that completed in full
  double good_calls = 0;             // of those, the part of each whose values came in this time

  DurationHistogram first_value;  // from when the call was due to its first value
  DurationHistogram gap;          // between two messages with values of one call
  DurationHistogram call;         // from due to its end, of those that completed
  DurationHistogram late;         // from due to sent: what this program adds

  double goodput() const { return seconds > 0 ? static_cast<double>(good_values) / seconds : 0; }
  int64_t refusals() const;
  int64_t failures() const;
  // Of all refusals, the longest of their p99s in seconds.
  double refusal_p99() const;
};

// Every figure; durations in milliseconds.
OrderedJson figures_json(const LoadFigures& figures);

// One line for each run under a heading; of runs at the same load only the median by goodput.
std::string figures_table(const std::vector<LoadFigures>& runs);

}  // namespace runnel
