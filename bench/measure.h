// The measurements of the command bench, one function each.
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

// Runs one Work; the seconds that it took.
using RunWork = std::function<Result<double>(const Work& work, const OnValues& on_values)>;

// How long and of what a throughput is measured.
struct Pace {
  int64_t values = 0;   // of each sequence
  int64_t sampled = 0;  // of these by the model: all but a first value that the spec gives
  // Whole runs are measured until they have taken this long. One that would take more than ten
  // times as long is cut. 0: one whole run.
  double seconds = 0;
};

// Values per second of `calls` calls of `samples` sequences each, after a short run to warm up:
// {batch, values, runs: [values per second], values_per_s: their median}; with `cut_from`, the
// values of a whole sequence, where runs were cut.
Result<OrderedJson> measure_throughput(const RunWork& run, int calls, int samples, const Pace& pace,
                                       const OnValues& on_values);

// Values per second at which a fresh sequence reads a prompt of `values` random values, the first
// sampled value included, after one such prompt to warm up: {values, runs: [values per second],
// values_per_s: their median}.
Result<OrderedJson> measure_prompts(Engine& engine, int64_t values, double seconds);

// Resident bytes per session: with many of them less with one. {state_bytes, sessions,
// resident_bytes_per_session}.
Result<OrderedJson> measure_memory(const MeasuredModel& subject);

// The cost of a value at each position against that at the first of them, measured in turns:
// {values, points: [{position, us_per_value, ratio}], prompt_values_per_s,
// resident_growth_bytes}. Told how many values the session has consumed.
Result<OrderedJson> measure_positions(const MeasuredModel& subject,
                                      const std::vector<int64_t>& positions, int64_t values,
                                      const OnValues& on_values);

// Where the time of a step goes: {batch, steps, threads, step_us, operations: [{name, us}]}, in
// microseconds of one step; where several threads took part, of each of them on average. The steps
// are those from position `from` on; caches of attention hold zeros before it.
Result<OrderedJson> measure_operations(const MeasuredModel& subject, int batch, double seconds,
                                       int64_t from = 0);

// Makes a session named `session` and gives it `position` random values.
Status feed_to(Engine& engine, const std::string& session, int64_t position);

// INVALID_ARGUMENT where sequences of the model end before `values` values after `position`. The
// message begins with `asked` and says what to do.
Status check_room(const Spec& spec, const std::string& asked, int64_t position, int64_t values);

// The machine's limits, with one thread and with `threads`.
Result<OrderedJson> measure_machine(int threads);

}  // namespace runnel
