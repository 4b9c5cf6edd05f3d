// Values per second of a model on the GPU, without a server: first shown to give the CPU's
// log-probabilities, then timed over batches of sequences that sample, and over a prompt. Where one
// kernel does the whole network, each batch is first shown to have the bits of one kernel for each
// operation. One JSON object per line, so that what was measured is there when the rest is cut
// short.
//
//   gpu_steps BUNDLE [FLAG VALUE]...      (driving.h)
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "bench/gpu/driving.h"
#include "kernels/cpu/cpu_backend.h"

namespace runnel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSteps = 16;   // of a launch
constexpr int kForced = 65;  // values that are compared with the CPU
constexpr int kPrompt = 512;
constexpr int kLayersCompared = 2;  // of a model too large for the CPU's patience

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int32_t> some_values(const Spec& spec, int count) {
  std::vector<int32_t> values(count);
  for (int i = 0; i < count; ++i) values[i] = i * 7 % spec.vocabulary;
  return values;
}

// How far the GPU is from the CPU in fp32, in nats a value; false: too far.
bool agrees(const Settings& settings, Backend& gpu) {
  const Bundle bundle = bundle_of(settings, kLayersCompared);
  const ModelLimits limits = {.slots = 1, .rows = 1, .values = kForced, .steps = 1};
  const auto values = some_values(bundle.spec, kForced);
  const auto cpu = make_cpu_backend({});
  const auto expected = score(*model_of(bundle, **cpu, limits, Precision::kFp32), values);
  const auto found = score(*model_of(bundle, gpu, limits, settings.precision), values);
  double apart = 0;
  for (size_t i = 0; i < expected.size(); ++i) apart += std::abs(double{found[i]} - expected[i]);
  apart /= static_cast<double>(expected.size());
  const bool equal = apart < (settings.precision == Precision::kFp32 ? 1e-3 : 3e-2);
  std::printf("{\"numerics\": \"%s\", \"nats_from_cpu\": %.2e, \"equal\": %s}\n",
              gpu.numerics(settings.precision).c_str(), apart, equal ? "true" : "false");
  std::fflush(stdout);
  return equal;
}

std::vector<Row> sampling_rows(int rows) {
  std::vector<Row> batch;
  for (SlotId slot = 0; slot < rows; ++slot) batch.push_back({slot, {}, Want::kNext});
  return batch;
}

void begin_all(Model& model, int rows, int64_t count) {
  for (SlotId slot = 0; slot < rows; ++slot) begin(model, slot, slot, count);
}

// What fresh sequences draw in one launch.
std::vector<Emitted> drawn(Model& model, int rows) {
  begin_all(model, rows, kSteps);
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

// Whether every batch draws what it draws with one kernel for each operation, to the bit; says so.
// Of a model that goes that way anyhow there is nothing to show.
bool same_bits(const Settings& settings, const Bundle& bundle, const ModelLimits& limits,
               Model& model) {
  const CudaOptions& options = settings.options;
  if (!options.whole || options.library || options.replay || settings.bundle == "lm") return true;
  Settings by_operations = settings;
  by_operations.options.whole = false;
  const auto gpu = gpu_of(by_operations);
  const auto operations = model_of(bundle, *gpu, limits, settings.precision);
  for (const int rows : settings.batches) {
    const bool equal = are_same(drawn(model, rows), drawn(*operations, rows));
    std::printf("{\"rows\": %d, \"bits_equal_operations\": %s}\n", rows, equal ? "true" : "false");
    std::fflush(stdout);
    if (!equal) return false;
  }
  return true;
}

// Seconds of each step of `rows` sequences, for about `seconds`; the first tenth warms up.
std::vector<double> steps_of(Model& model, int rows, double seconds) {
  const std::vector<Row> batch = sampling_rows(rows);
  std::vector<Emitted> emitted;
  emitted.reserve(static_cast<size_t>(rows) * kSteps);
  const int64_t length = model.spec().max_length() > 0 ? model.spec().max_length() : 1 << 20;
  const int64_t launches = (length - 1) / kSteps;
  std::vector<double> each;
  const Clock::time_point started = Clock::now();
  for (int64_t i = launches; seconds_since(started) < seconds || each.size() < 4; ++i) {
    if (i == launches) {
      begin_all(model, rows, length);
      i = 0;
    }
    const Clock::time_point start = Clock::now();
    finish(model, model.submit(batch, kSteps), emitted);
    each.push_back(seconds_since(start) / kSteps);
  }
  each.erase(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(each.size() / 10));
  return each;
}

// What steps a batch, as a report calls it.
std::string way_of(const CudaOptions& options) {
  if (!options.whole) return "operations";
  if (options.cluster == 0 && options.together == 0) return "engine";
  const auto which = [](int number) { return number == 0 ? "any" : std::to_string(number); };
  return "clusters of " + which(options.cluster) + " times " + which(options.together);
}

void time_batch(Model& model, const std::string& way, int rows, double seconds) {
  std::vector<double> each = steps_of(model, rows, seconds);
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
      way.c_str(), spec.name.c_str(), model.layout().numerics.c_str(), rows, rows / mean,
      mean * 1e6, each[each.size() / 2] * 1e6, each[each.size() * 99 / 100] * 1e6,
      2.0 * static_cast<double>(spec.state_bytes()) * rows / mean / 1e9,
      static_cast<long long>(spec.state_bytes()),
      static_cast<long long>(model.layout().state_bytes), static_cast<long long>(spec.parameters()),
      static_cast<long long>(spec.image ? spec.image->bytes() - 1 : 0));
  std::fflush(stdout);
}

// A prompt of one sequence, again and again.
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
  if (!agrees(settings, *gpu)) return 1;
  const int most = *std::max_element(settings.batches.begin(), settings.batches.end());
  const ModelLimits limits = {
      .slots = most, .rows = most, .values = most + kPrompt, .steps = kSteps};
  const auto model = model_of(bundle, *gpu, limits, settings.precision);
  if (!same_bits(settings, bundle, limits, *model)) return 1;
  for (const int rows : settings.batches) {
    time_batch(*model, way_of(settings.options), rows, settings.seconds);
  }
  time_prompt(*model, settings.seconds);
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::run(runnel::settings_of(argc, argv)); }
