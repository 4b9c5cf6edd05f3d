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

// A call counts if it was due within the measured time, whenever it ended. Values, messages and
// gaps count if they arrived within it.
struct LoadFigures {
  double seconds = 0;   // measured
  double multiple = 0;  // of the capacity; 0: the rate was given
  double rate = 0;      // calls due per second, on average; 0: `concurrency` calls at a time
  int64_t concurrency = 0;

  int64_t due = 0;
  int64_t completed = 0;                    // in full
  int64_t cancelled = 0;                    // by this program, as planned
  int64_t stalled = 0;                      // of any outcome: not read for a while, as planned
  int64_t unfinished = 0;                   // had not ended after the grace period
  int64_t dropped = 0;                      // never made: too many were open
  int64_t waited = 0;                       // of any outcome: told that they wait for a state
  std::map<std::string, Refusals> refused;  // calls that ended before Started, by status
  std::map<std::string, int64_t>
      failed;  // after Started, by status; "SHORT": status OK, but too few values

  int64_t values = 0, messages = 0;  // of all calls; only messages with values
  int64_t good_values = 0;           // of calls that completed in full
  // Each call that completed in full adds the share of its values that arrived within the measured
  // time.
  double good_calls = 0;

  DurationHistogram first_value;  // from when the call was due to its first value
  DurationHistogram gap;          // between two messages with values of one call
  DurationHistogram call;         // from due to the end, of completed calls
  DurationHistogram late;         // from due to sent: the delay that this program adds

  double goodput() const { return seconds > 0 ? static_cast<double>(good_values) / seconds : 0; }
  int64_t refusals() const;
  int64_t failures() const;
  // The largest of the p99 latencies in `refused`, in seconds.
  double refusal_p99() const;
};

// All figures, with latencies in milliseconds.
OrderedJson figures_json(const LoadFigures& figures);

// A heading, and a line for each load. The line has the figures of the run with the median goodput.
std::string figures_table(const std::vector<LoadFigures>& runs);

}  // namespace runnel
