// The measurements of the command `bench`, one function each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "bench/tally.h"
#include "engine/engine.h"
#include "server/host/load_model.h"

namespace runnel {

// A bundle and the settings under which it is measured.
struct MeasuredModel {
  ServerConfig config;  // with one model
  const ModelFactory& make_model;
};

// Runs one Work and returns the seconds that it took.
using RunWork = std::function<Result<double>(const Work& work, const OnValues& on_values)>;

// The size of the sequences and the length of a measurement of throughput.
struct Pace {
  int64_t values = 0;   // of each sequence
  int64_t sampled = 0;  // values that the model samples: all except a first value from the spec
  // Whole runs are repeated until they have taken this long in total. A run that would take more
  // than twice as long is cut short. 0: one whole run.
  double seconds = 0;
};

// Measures the values per second of `calls` calls with `samples` sequences each, after a short run
// to warm up. Returns {batch, values, runs: [values per second], values_per_s: their median}. If
// runs were cut short, also returns `cut_from`, the number of sampled values of a whole sequence.
Result<OrderedJson> measure_throughput(const RunWork& run, int calls, int samples, const Pace& pace,
                                       const OnValues& on_values);

// Measures how fast a new sequence reads a prompt of `values` random values, in values per second,
// after one such prompt to warm up. The time includes the first sampled value. Returns {values,
// runs: [values per second], values_per_s: their median}.
Result<OrderedJson> measure_prompts(Engine& engine, int64_t values, double seconds);

// Measures the resident bytes per session: the difference between the model with many sessions and
// the model with one. Returns {state_bytes, sessions, resident_bytes_per_session}.
Result<OrderedJson> measure_memory(const MeasuredModel& subject);

// Measures the time of a value at each position, and its ratio to the time at the first of these
// positions. A session at the position and a session at the first position take turns. Returns
// {values, points: [{position, us_per_value, ratio}], prompt_values_per_s, resident_growth_bytes}.
// Calls `on_values` with the number of values that the session has consumed.
Result<OrderedJson> measure_positions(const MeasuredModel& subject,
                                      const std::vector<int64_t>& positions, int64_t values,
                                      const OnValues& on_values);

// Measures the time of each operation in a step. Returns {batch, steps, threads, step_us,
// operations: [{name, us}]}, where `us` is in microseconds per step, averaged over the threads of
// the step. The steps begin at position `from`. Attention caches contain zeros before this
// position.
Result<OrderedJson> measure_operations(const MeasuredModel& subject, int batch, double seconds,
                                       int64_t from = 0);

// Makes a session named `session` and gives it `position` random values.
Status feed_to(Engine& engine, const std::string& session, int64_t position);

// INVALID_ARGUMENT if sequences of the model are too short for `values` values after `position`.
// The message begins with `asked` and says what to do.
Status check_room(const Spec& spec, const std::string& asked, int64_t position, int64_t values);

// Measures the machine's limits with one thread and with `threads` threads.
Result<OrderedJson> measure_machine(int threads);

}  // namespace runnel
