// Measures values per second of a model on the GPU, without a server. First compares
// log-probabilities with the CPU's and, where one kernel runs the whole network, each batch's bits
// with those of one kernel per operation. Then times batches of sequences that sample, and a
// prompt. If a comparison fails, the times are still measured, and the program exits with 1. Prints
// one JSON object per line, so that a run that is cut short leaves the results it has.
//
//   gpu_steps BUNDLE [FLAG VALUE]...      (driving.h)
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

#include "bench/gpu/driving.h"
#include "kernels/cpu/cpu_backend.h"

namespace runnel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSteps = 16;   // in a launch
constexpr int kForced = 65;  // values that are compared with the CPU's
constexpr int kPrompt = 512;
constexpr int kLayersCompared = 2;  // in a model that would take the CPU too long

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int32_t> some_values(const Spec& spec, int count) {
  std::vector<int32_t> values(count);
  for (int i = 0; i < count; ++i) values[i] = i * 7 % spec.vocabulary;
  return values;
}

// Prints how far the GPU is from the CPU in fp32, in nats per value. Returns false if that is too
// far.
bool agrees(const Settings& settings, Backend& gpu) {
  const Bundle bundle = bundle_of(settings, kLayersCompared);
  const ModelLimits limits = {.slots = 1, .rows = 1, .values = kForced, .steps = 1};
  const auto values = some_values(bundle.spec, kForced);
  const auto cpu = make_cpu_backend({});
  const auto expected = score(*model_of(bundle, **cpu, limits, Precision::kFp32), values);
  const auto found = score(*model_of(bundle, gpu, limits, settings.precision), values);
  double apart = 0;
  double size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    apart += std::abs(double{found[i]} - expected[i]);
    size += std::abs(double{expected[i]});
  }
  apart /= static_cast<double>(expected.size());
  size /= static_cast<double>(expected.size());
  // Random weights may give log-probabilities of hundreds of nats, and rounding errors grow in
  // proportion. Those of trained models are below ten. On a CPU, bf16 is up to 0.05 nats from fp32
  // (GLA of 340 million parameters).
  const double allowed = settings.precision == Precision::kFp32 ? 1e-3 : 6e-2;
  const bool equal = apart < allowed * std::max(1.0, size / 10);
  std::printf("{\"numerics\": \"%s\", \"nats_from_cpu\": %.2e, \"nats\": %.1f, \"equal\": %s}\n",
              gpu.numerics(settings.precision).c_str(), apart, size, equal ? "true" : "false");
  std::fflush(stdout);
  return equal;
}

std::vector<Row> sampling_rows(int rows) {
  std::vector<Row> batch;
  for (SlotId slot = 0; slot < rows; ++slot) batch.push_back({slot, {}, Want::kNext});
  return batch;
}

void begin_all(Model& model, int rows, int64_t count, const Sampling& sampling) {
  for (SlotId slot = 0; slot < rows; ++slot) begin(model, slot, slot, count, sampling);
}

// The values that fresh sequences draw in one launch.
std::vector<Emitted> drawn(Model& model, int rows, const Sampling& sampling) {
  begin_all(model, rows, kSteps, sampling);
  std::vector<Emitted> emitted;
  finish(model, model.submit(sampling_rows(rows), kSteps), emitted);
  return emitted;
}

bool are_same(const std::vector<Emitted>& found, const std::vector<Emitted>& expected) {
  return std::equal(found.begin(), found.end(), expected.begin(), expected.end(),
                    [](const Emitted& a, const Emitted& b) {
                      return a.row == b.row && a.position == b.position && a.value == b.value &&
                             std::bit_cast<uint32_t>(a.log_prob) ==
                                 std::bit_cast<uint32_t>(b.log_prob);
                    });
}

// Draws each batch with one kernel per operation. The whole-model kernel must draw the same values.
// Returns nothing for a model that has no whole-model kernel.
std::vector<std::vector<Emitted>> drawn_by_operations(const Settings& settings,
                                                      const Bundle& bundle,
                                                      const ModelLimits& limits) {
  const CudaOptions& options = settings.options;
  if (!options.whole || options.library || options.replay || settings.bundle == "lm") return {};
  Settings by_operations = settings;
  by_operations.options.whole = false;
  const auto gpu = gpu_of(by_operations);
  const auto model = model_of(bundle, *gpu, limits, settings.precision);
  std::vector<std::vector<Emitted>> each;
  for (const int rows : settings.batches) {
    each.push_back(drawn(*model, rows, settings.sampling));
  }
  return each;
}

// Returns whether every batch draws the expected values, to the bit, and prints the result.
bool same_bits(const Settings& settings, const std::vector<std::vector<Emitted>>& expected,
               Model& model) {
  bool all_equal = true;
  for (size_t i = 0; i < expected.size(); ++i) {
    const int rows = settings.batches[i];
    const bool equal = are_same(drawn(model, rows, settings.sampling), expected[i]);
    std::printf("{\"rows\": %d, \"bits_equal_operations\": %s}\n", rows, equal ? "true" : "false");
    std::fflush(stdout);
    all_equal = all_equal && equal;
  }
  return all_equal;
}

// Seconds of each step of `rows` sequences, in launches of kSteps. The first kWarmUp launches are
// not measured: the backend launches kernel by kernel, then captures a graph, then uploads it.
std::vector<double> steps_of(Model& model, const Settings& settings, int rows) {
  constexpr size_t kWarmUp = 3;
  constexpr size_t kFewest = 4;
  const std::vector<Row> batch = sampling_rows(rows);
  std::vector<Emitted> emitted;
  emitted.reserve(static_cast<size_t>(rows) * kSteps);
  const int64_t length = model.spec().max_length() > 0 ? model.spec().max_length() : 1 << 20;
  const int64_t launches = (length - 1) / kSteps;
  std::vector<double> each;
  Clock::time_point measured;  // when measuring starts
  for (int64_t i = launches;
       each.size() < kWarmUp + kFewest || seconds_since(measured) < settings.seconds; ++i) {
    if (i == launches) {
      begin_all(model, rows, length, settings.sampling);
      i = 0;
    }
    if (each.size() == kWarmUp) measured = Clock::now();
    const Clock::time_point start = Clock::now();
    finish(model, model.submit(batch, kSteps), emitted);
    each.push_back(seconds_since(start) / kSteps);
  }
  each.erase(each.begin(), each.begin() + kWarmUp);
  return each;
}

// The name of the way in which a batch is stepped, for a report.
std::string way_of(const CudaOptions& options) {
  if (!options.whole) return "operations";
  if (options.cluster == 0 && options.together == 0) {
    return options.costs == LayerCosts{} ? "engine" : "engine with other costs";
  }
  const auto which = [](int number) { return number == 0 ? "any" : std::to_string(number); };
  return "clusters of " + which(options.cluster) + " times " + which(options.together);
}

void time_batch(Model& model, const Settings& settings, int rows) {
  std::vector<double> each = steps_of(model, settings, rows);
  double sum = 0;
  for (const double at : each) sum += at;
  std::sort(each.begin(), each.end());
  const double mean = sum / static_cast<double>(each.size());
  const Spec& spec = model.spec();
  std::printf(
      "{\"what\": \"%s\", \"model\": \"%s\", \"numerics\": \"%s\", \"batch\": %d, "
      "\"values_per_s\": %.1f, "
      "\"step_us\": %.2f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"state_gb_s\": %.1f, "
      "\"state_bytes\": %lld, \"slot_bytes\": %lld, \"parameters\": %lld, \"image_values\": "
      "%lld}\n",
      way_of(settings.options).c_str(), spec.name.c_str(), model.layout().numerics.c_str(), rows,
      rows / mean, mean * 1e6, each[each.size() / 2] * 1e6, each[each.size() * 99 / 100] * 1e6,
      2.0 * static_cast<double>(spec.state_bytes()) * rows / mean / 1e9,
      static_cast<long long>(spec.state_bytes()),
      static_cast<long long>(model.layout().state_bytes), static_cast<long long>(spec.parameters()),
      static_cast<long long>(spec.image ? spec.image->bytes() - 1 : 0));
  std::fflush(stdout);
}

// Times every cluster shape and compares its bits. The shapes that are most likely to be best come
// first.
bool sweep(const Settings& settings, const Bundle& bundle, const ModelLimits& limits,
           const std::vector<std::vector<Emitted>>& expected) {
  constexpr int kMostBlocks = 16;
  bool all_equal = true;
  for (const int blocks : {16, 8, 4, 2, 1}) {
    for (int together = 1; blocks * together <= kMostBlocks; together *= 2) {
      if (blocks * together == 1) continue;  // not a cluster
      Settings one = settings;
      one.options.cluster = blocks;
      one.options.together = together;
      const auto gpu = gpu_of(one);
      const auto model = model_of(bundle, *gpu, limits, one.precision);
      all_equal = same_bits(one, expected, *model) && all_equal;
      for (const int rows : one.batches) time_batch(*model, one, rows);
    }
  }
  return all_equal;
}

// Times a prompt of one sequence, repeatedly.
void time_prompt(Model& model, double seconds) {
  const auto values = some_values(model.spec(), kPrompt + 1);
  score(model, values);
  const Clock::time_point started = Clock::now();
  int count = 0;
  for (; seconds_since(started) < seconds; ++count) score(model, values);
  std::printf("{\"model\": \"%s\", \"numerics\": \"%s\", \"prompt\": %d, \"values_per_s\": %.1f}\n",
              model.spec().name.c_str(), model.layout().numerics.c_str(), kPrompt,
              count * double{kPrompt} / seconds_since(started));
  std::fflush(stdout);
}

int run(const Settings& settings) {
  const auto gpu = gpu_of(settings);
  const Bundle bundle = bundle_of(settings);
  if (const int64_t length = bundle.spec.max_length(); length > 0 && length <= kPrompt + 1) {
    give_up("the model ends at " + std::to_string(length) + " values; take a longer one");
  }
  bool equal = agrees(settings, *gpu);
  const int most = *std::max_element(settings.batches.begin(), settings.batches.end());
  const ModelLimits limits = {
      .slots = most, .rows = most, .values = most + kPrompt, .steps = kSteps};
  const auto expected = drawn_by_operations(settings, bundle, limits);
  if (settings.sweep) return sweep(settings, bundle, limits, expected) && equal ? 0 : 1;
  const auto model = model_of(bundle, *gpu, limits, settings.precision);
  equal = same_bits(settings, expected, *model) && equal;
  for (const int rows : settings.batches) time_batch(*model, settings, rows);
  time_prompt(*model, settings.seconds);
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::run(runnel::settings_of(argc, argv)); }
