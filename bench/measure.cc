#include "bench/measure.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "bench/engine_calls.h"
#include "bench/machine_limits.h"
#include "bench/timed_backend.h"
#include "models/bundle/bundle.h"
#include "models/make_model.h"

namespace runnel {
namespace {

constexpr int64_t kWarmUpValues = 16;
constexpr double kLongestRun = 2;      // in multiples of a pace's seconds
constexpr int kMemorySessions = 1024;  // or fewer, to stay within kMemoryBytes
constexpr int64_t kMemoryBytes = int64_t{4} << 30;
constexpr int kTurns = 31;  // at each position; the median counts
constexpr int64_t kChunk = 1 << 14;
constexpr const char* kSession = "bench";
constexpr const char* kReference = "bench-reference";

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const size_t middle = numbers.size() / 2;
  if (numbers.size() % 2 == 1) return numbers[middle];
  return (numbers[middle - 1] + numbers[middle]) / 2;
}

double rounded(double number, int digits) {
  const double unit = std::pow(10.0, digits);
  return std::round(number * unit) / unit;
}

// Bytes of this process in memory.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::vector<int32_t> random_values(int64_t count, int vocabulary, std::mt19937& random) {
  std::vector<int32_t> values(count);
  for (int32_t& value : values) {
    value = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
  }
  return values;
}

// A session that advances through the positions, and a reference that stays at the first.
class PositionWalk {
 public:
  PositionWalk(Engine& engine, int64_t values) : engine_(engine), values_(values) {}

  // Feeds random values until the session has consumed `to` of them.
  Status walk(const std::string& session, int64_t from, int64_t to, const OnValues& on_values) {
    for (int64_t at = from; at < to; at += kChunk) {
      const int64_t count = std::min(kChunk, to - at);
      const Result<double> seconds =
          feed_session(engine_, session, random_values(count, engine_.spec().vocabulary, random_));
      if (!seconds.ok()) return seconds.status();
      fed_ += count;
      feed_seconds_ += *seconds;
      if (on_values) on_values(at + count);
    }
    return {};
  }

  // The median of the session's microseconds per value, and of its ratio to the reference.
  Result<OrderedJson> compare(int64_t position) {
    std::vector<double> micros;
    std::vector<double> ratios;
    for (int turn = 0; turn < kTurns; ++turn) {
      // The two take turns in going first, so that other load on the machine affects both alike.
      const bool here_first = turn % 2 == 1;
      const Result<double> first = sample_from_session(engine_, name(here_first), values_);
      if (!first.ok()) return first.status();
      const Result<double> second = sample_from_session(engine_, name(!here_first), values_);
      if (!second.ok()) return second.status();
      const double here = here_first ? *first : *second;
      micros.push_back(here / static_cast<double>(values_) * 1e6);
      ratios.push_back(here / (here_first ? *second : *first));
    }
    return OrderedJson{{"position", position},
                       {"us_per_value", rounded(median(micros), 2)},
                       {"ratio", rounded(median(ratios), 4)}};
  }

  double prompt_values_per_s() const { return static_cast<double>(fed_) / feed_seconds_; }

 private:
  static const char* name(bool here) { return here ? kSession : kReference; }

  Engine& engine_;
  const int64_t values_;
  std::mt19937 random_{1};
  int64_t fed_ = 0;
  double feed_seconds_ = 0;
};

// Starts a sequence at `position`.
void begin_row(Model& model, int row, int64_t position) {
  Control control;
  control.position = position;
  control.seed = static_cast<uint64_t>(row);
  control.pending = 0;
  control.remaining = INT64_MAX;
  model.set(row, control, true);
}

// Steps a batch of rows that all sample, from position `from` on, for at least `seconds` and at
// least once. Returns the number of steps and the seconds that they took.
Result<std::pair<int64_t, double>> step_for(Model& model, int batch, double seconds, int64_t from) {
  std::vector<Row> rows(batch);
  for (int row = 0; row < batch; ++row) {
    rows[row] = {.slot = row, .values = {}, .want = Want::kNext};
  }
  std::vector<Emitted> emitted;
  emitted.reserve(batch);
  const int64_t last = model.spec().max_length() == 0 ? INT64_MAX : model.spec().max_length() - 1;
  int64_t steps = 0;
  double spent = 0;
  for (int64_t position = last; steps == 0 || spent < seconds; ++steps, ++position) {
    if (position == last) {  // true in the first step
      for (int row = 0; row < batch; ++row) begin_row(model, row, from);
      position = from;
    }
    emitted.clear();
    const auto start = std::chrono::steady_clock::now();
    const Ticket ticket = model.submit(rows, 1);
    Result<bool> done = false;
    while (done.ok() && !*done) done = model.collect(ticket, emitted);
    if (!done.ok()) return done.status();
    spent += seconds_since(start);
  }
  return std::pair(steps, spent);
}

// On a GPU, an operation returns before it has ended, and its memory is not the process's.
Status only_on_cpu(const LoadedModel& loaded, const std::string& what) {
  if (loaded.model->device() == DeviceKind::kCpu) return {};
  return {Code::kFailedPrecondition, "--what " + what + " measures the CPU alone, and the model " +
                                         "runs as " + loaded.model->layout().numerics +
                                         ": add --backend cpu, or leave it out"};
}

OrderedJson operations_json(const TimedBackend& backend, int64_t steps) {
  const double shares = backend.threads() * static_cast<double>(steps);
  OrderedJson operations = OrderedJson::array();
  for (int i = 0; i < kStepParts; ++i) {
    const auto part = static_cast<StepPart>(i);
    const Spent& spent = backend.spent(part);
    if (spent.calls == 0) continue;
    const double micros = std::chrono::duration<double, std::micro>(spent.time).count() / shares;
    operations.push_back({{"name", step_part_name(part)}, {"us", rounded(micros, 2)}});
  }
  return operations;
}

OrderedJson limits_json(const MachineLimits& limits) {
  return {{"threads", limits.threads},
          {"fp32_gflops", rounded(limits.fp32_gflops, 1)},
          {"bf16_gflops", rounded(limits.bf16_gflops, 1)},
          {"tile_gflops", rounded(limits.tile_gflops, 1)},
          {"l2_gbps", rounded(limits.l2_gbps, 1)},
          {"l3_gbps", rounded(limits.l3_gbps, 1)},
          {"dram_gbps", rounded(limits.dram_gbps, 1)},
          {"dram_update_gbps", rounded(limits.dram_update_gbps, 1)}};
}

// The bundle as load_model() loads it.
Result<Bundle> bundle_of(const MeasuredModel& subject) {
  Result<Bundle> bundle = load_bundle(subject.config.models[0].path);
  if (!bundle.ok()) return bundle;
  if (Status s = set_context(subject.config.context, bundle->spec); !s.ok()) return s;
  return bundle;
}

// The type of a model's attention caches; none if it has no caches.
std::optional<DType> cache_of(const StateLayout& layout) {
  const auto part = std::ranges::find_if(layout.parts, &StatePart::paged);
  return part == layout.parts.end() ? std::nullopt : std::optional(part->type);
}

// The number of values of each sequence in a run, if one value of all sequences takes
// `seconds_each`.
int64_t values_in_time(const Pace& pace, double seconds_each) {
  const double most = kLongestRun * pace.seconds;
  if (pace.seconds <= 0 || seconds_each * static_cast<double>(pace.values) <= most) {
    return pace.values;
  }
  return std::clamp(static_cast<int64_t>(most / seconds_each), std::min(kWarmUpValues, pace.values),
                    pace.values);
}

}  // namespace

Result<OrderedJson> measure_throughput(const RunWork& run, int calls, int samples, const Pace& pace,
                                       const OnValues& on_values) {
  Work work = {.calls = calls, .samples = samples, .values = std::min(pace.values, kWarmUpValues)};
  const Result<double> warm = run(work, {});
  if (!warm.ok()) return warm.status();
  work.values = values_in_time(pace, *warm / static_cast<double>(work.values));
  const int64_t each = work.values - (pace.values - pace.sampled);
  const auto sampled = static_cast<double>(work.sequences() * each);
  std::vector<double> rates;
  int64_t done = 0;
  for (double spent = 0; rates.empty() || spent < pace.seconds;) {
    work.seed += static_cast<uint64_t>(calls);
    const Result<double> seconds = run(work, [&](int64_t values) { on_values(done + values); });
    if (!seconds.ok()) return seconds.status();
    spent += *seconds;
    done += work.all_values();
    rates.push_back(rounded(sampled / *seconds, 1));
  }
  OrderedJson figures = {{"batch", work.sequences()},
                         {"values", each},
                         {"runs", rates},
                         {"values_per_s", rounded(median(rates), 1)}};
  if (each < pace.sampled) figures["cut_from"] = pace.sampled;
  return figures;
}

Result<OrderedJson> measure_prompts(Engine& engine, int64_t values, double seconds) {
  std::mt19937 random(1);
  const auto read = [&] {
    return read_prompt(engine, random_values(values, engine.spec().vocabulary, random));
  };
  if (const Result<double> warm = read(); !warm.ok()) return warm.status();
  std::vector<double> rates;
  for (double spent = 0; rates.empty() || spent < seconds;) {
    const Result<double> one = read();
    if (!one.ok()) return one.status();
    spent += *one;
    rates.push_back(rounded(static_cast<double>(values) / *one, 1));
  }
  return OrderedJson{
      {"values", values}, {"runs", rates}, {"values_per_s", rounded(median(rates), 1)}};
}

Result<OrderedJson> measure_memory(const MeasuredModel& subject) {
  Result<Bundle> bundle = bundle_of(subject);
  if (!bundle.ok()) return bundle.status();
  ModelLimits limits = {.slots = 1, .rows = 1, .values = 1, .steps = 1};
  const auto fit = static_cast<int>(std::clamp<int64_t>(
      kMemoryBytes / std::max<int64_t>(bundle->spec.state_bytes(), 1), 1, kMemorySessions));
  int64_t resident[2] = {};
  int64_t state_bytes = 0;
  for (int64_t& bytes : resident) {
    const Result<LoadedModel> loaded = subject.make_model(*bundle, subject.config, limits);
    if (!loaded.ok()) return loaded.status();
    if (Status s = only_on_cpu(*loaded, "memory"); !s.ok()) return s;
    bytes = resident_bytes();
    state_bytes = loaded->model->layout().state_bytes;
    limits.slots += fit;
  }
  return OrderedJson{{"state_bytes", state_bytes},
                     {"sessions", fit},
                     {"resident_bytes_per_session", (resident[1] - resident[0]) / fit}};
}

Result<OrderedJson> measure_positions(const MeasuredModel& subject,
                                      const std::vector<int64_t>& positions, int64_t values,
                                      const OnValues& on_values) {
  const Clock clock;
  Result<ServedModel> model =
      load_model(subject.config.models[0], subject.config, subject.make_model, clock);
  if (!model.ok()) return model.status();
  const std::set<int64_t> sorted(positions.begin(), positions.end());
  if (Status s = check_room(model->engine->spec(), "--positions", *sorted.rbegin(), values);
      !s.ok()) {
    return s;
  }
  PositionWalk walk(*model->engine, values);
  if (Status s = walk.walk(kReference, 0, *sorted.begin(), {}); !s.ok()) return s;
  OrderedJson points = OrderedJson::array();
  int64_t resident = 0;
  int64_t at = 0;
  for (const int64_t position : sorted) {
    if (Status s = walk.walk(kSession, at, position, on_values); !s.ok()) return s;
    Result<OrderedJson> point = walk.compare(position);
    if (!point.ok()) return point.status();
    points.push_back(std::move(*point));
    if (at == 0) resident = resident_bytes();
    at = position;
  }
  return OrderedJson{{"values", values},
                     {"points", std::move(points)},
                     {"prompt_values_per_s", rounded(walk.prompt_values_per_s(), 1)},
                     {"resident_growth_bytes", resident_bytes() - resident}};
}

Result<OrderedJson> measure_operations(const MeasuredModel& subject, int batch, double seconds,
                                       int64_t from) {
  Result<Bundle> bundle = bundle_of(subject);
  if (!bundle.ok()) return bundle.status();
  if (Status s = check_room(bundle->spec, "--from", from, 2); !s.ok()) return s;
  ModelLimits limits = {.slots = 1, .rows = 1, .values = 1, .steps = 1};
  const Result<LoadedModel> plain = subject.make_model(*bundle, subject.config, limits);
  if (!plain.ok()) return plain.status();
  if (Status s = only_on_cpu(*plain, "operations"); !s.ok()) return s;
  TimedBackend backend(*plain->backend, bundle->spec);
  limits = {.slots = batch, .rows = batch, .values = batch, .steps = 1};
  const Result<std::unique_ptr<Model>> model =
      make_model(*bundle, backend, limits, plain->precision, cache_of(plain->model->layout()));
  if (!model.ok()) return model.status();
  if (const auto warm = step_for(**model, batch, seconds / 10, from); !warm.ok()) {
    return warm.status();
  }
  backend.reset();
  const Result<std::pair<int64_t, double>> stepped = step_for(**model, batch, seconds, from);
  if (!stepped.ok()) return stepped.status();
  const auto [steps, spent] = *stepped;
  return OrderedJson{{"batch", batch},
                     {"steps", steps},
                     {"threads", rounded(backend.threads(), 2)},
                     {"step_us", rounded(spent / static_cast<double>(steps) * 1e6, 2)},
                     {"operations", operations_json(backend, steps)}};
}

Status feed_to(Engine& engine, const std::string& session, int64_t position) {
  return PositionWalk(engine, 0).walk(session, 0, position, {});
}

Status check_room(const Spec& spec, const std::string& asked, int64_t position, int64_t values) {
  const int64_t length = spec.max_length();
  const int64_t needed = position + values;
  if (length == 0 || needed <= length) return {};
  std::string remedy = "ask for an earlier position";
  if (needed <= spec.most_positions + 1) {
    remedy = "add --context " + std::to_string(needed - 1);
  } else if (spec.most_positions == 0) {
    remedy =
        "measure one without an end, made by 'scripts/runnel-random-bundle --preset mnist "
        "--endless --out DIR'";
  }
  return invalid_argument(asked + " " + std::to_string(position) + " with " +
                          std::to_string(values) + " values after it: the model ends at " +
                          std::to_string(length) + "; " + remedy);
}

Result<OrderedJson> measure_machine(int threads) {
  OrderedJson all = OrderedJson::array();
  for (const int count : std::set{1, threads}) {
    const Result<MachineLimits> limits = measure_limits(count);
    if (!limits.ok()) return limits.status();
    all.push_back(limits_json(*limits));
  }
  return all;
}

}  // namespace runnel
