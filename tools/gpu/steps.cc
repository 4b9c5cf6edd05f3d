// Values per second of a model on the GPU, without a server: first shown to give the CPU's
// log-probabilities, then timed over batches of sequences that sample. One JSON object per line, so
// that what was measured is there when the rest is cut short.
//
//   steps BUNDLE [SECONDS_PER_BATCH]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "models/bundle.h"
#include "models/linear_transformer.h"

namespace runnel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSteps = 16;  // of a launch
constexpr int kBatches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
constexpr int kForced = 64;  // values that are compared with the CPU

std::unique_ptr<Model> make(const Bundle& bundle, Backend& backend, int rows, Precision precision) {
  auto model = make_linear_transformer(
      bundle, backend,
      {.slots = rows, .rows = rows, .values = std::max(rows, kForced), .steps = kSteps}, precision);
  if (!model.ok()) {
    std::fprintf(stderr, "steps: %s\n", model.status().message().c_str());
    std::exit(1);
  }
  return std::move(*model);
}

void finish(Model& model, Ticket ticket, std::vector<Emitted>& emitted) {
  emitted.clear();
  while (true) {
    const Result<bool> done = model.collect(ticket, emitted);
    if (!done.ok()) {
      std::fprintf(stderr, "steps: %s\n", done.status().message().c_str());
      std::exit(1);
    }
    if (*done) return;
    std::this_thread::yield();
  }
}

// Log-probabilities of a fixed sequence.
std::vector<float> forced(Model& model) {
  std::vector<int32_t> values(kForced);
  for (int i = 0; i < kForced; ++i) values[i] = i * 7 % model.spec().vocabulary;
  Control control;
  control.pending = 0;
  model.set(0, control, true);
  const Row row = {0, values, Want::kScores};
  std::vector<Emitted> emitted;
  finish(model, model.submit({&row, 1}, 1), emitted);
  std::vector<float> log_probs;
  for (const Emitted& at : emitted) log_probs.push_back(at.log_prob);
  return log_probs;
}

// How far the GPU is from the CPU in fp32, in nats a value.
double difference(const Bundle& bundle, Backend& gpu, Precision precision) {
  const auto cpu = make_cpu_backend({});
  const std::vector<float> expected = forced(*make(bundle, **cpu, 1, Precision::kFp32));
  const std::vector<float> found = forced(*make(bundle, gpu, 1, precision));
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) sum += std::abs(double{found[i]} - expected[i]);
  return sum / static_cast<double>(expected.size());
}

// Values per second of `rows` sequences, for about `seconds`.
void time_batch(const Bundle& bundle, Backend& gpu, int rows, Precision precision, double seconds) {
  const std::unique_ptr<Model> model = make(bundle, gpu, rows, precision);
  std::vector<Row> batch;
  std::vector<Emitted> emitted;
  emitted.reserve(static_cast<size_t>(rows) * kSteps);
  const int64_t length = model->spec().max_length() > 0 ? model->spec().max_length() : 1 << 20;
  for (SlotId slot = 0; slot < rows; ++slot) batch.push_back({slot, {}, Want::kNext});
  const auto begin_all = [&] {
    for (SlotId slot = 0; slot < rows; ++slot) {
      Control control;
      control.seed = static_cast<uint64_t>(slot);
      control.pending = 0;
      control.remaining = length;
      model->set(slot, control, true);
    }
  };
  const int64_t launches = (length - 1) / kSteps;
  std::vector<double> each;
  const Clock::time_point started = Clock::now();
  double taken = 0;
  while (taken < seconds) {
    begin_all();
    for (int64_t i = 0; i < launches && taken < seconds; ++i) {
      const Clock::time_point begin = Clock::now();
      finish(*model, model->submit(batch, kSteps), emitted);
      each.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / kSteps);
      taken = std::chrono::duration<double>(Clock::now() - started).count();
    }
  }
  // The first tenth warms up.
  each.erase(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(each.size() / 10));
  double sum = 0;
  for (const double at : each) sum += at;
  std::sort(each.begin(), each.end());
  const double mean = sum / static_cast<double>(each.size());
  std::printf(
      "{\"numerics\": \"%s\", \"batch\": %d, \"values_per_s\": %.1f, \"step_us\": %.2f, "
      "\"p50_us\": %.2f, \"p99_us\": %.2f, \"state_gb_s\": %.1f}\n",
      model->layout().numerics.c_str(), rows, rows / mean, mean * 1e6, each[each.size() / 2] * 1e6,
      each[each.size() * 99 / 100] * 1e6,
      2.0 * static_cast<double>(model->spec().state_bytes()) * rows / mean / 1e9);
  std::fflush(stdout);
}

int run(const std::string& directory, double seconds) {
  const auto gpu = make_cuda_backend();
  if (!gpu.ok()) {
    std::fprintf(stderr, "steps: %s\n", gpu.status().message().c_str());
    return 1;
  }
  const Result<Bundle> bundle = load_bundle(directory);
  if (!bundle.ok()) {
    std::fprintf(stderr, "steps: %s\n", bundle.status().message().c_str());
    return 1;
  }
  if (const int64_t length = bundle->spec.max_length(); length > 0 && length <= kForced + 1) {
    std::fprintf(stderr, "steps: the model ends at %d values; take a longer one\n",
                 static_cast<int>(length));
    return 1;
  }
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const double apart = difference(*bundle, **gpu, precision);
    const double allowed = precision == Precision::kFp32 ? 1e-3 : 3e-2;
    std::printf("{\"precision\": \"%s\", \"nats_from_cpu\": %.2e, \"equal\": %s}\n",
                precision == Precision::kFp32 ? "fp32" : "bf16", apart,
                apart < allowed ? "true" : "false");
    if (!(apart < allowed)) return 1;
    for (const int rows : kBatches) time_batch(*bundle, **gpu, rows, precision, seconds);
  }
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: steps BUNDLE [SECONDS_PER_BATCH]\n");
    return 2;
  }
  return runnel::run(argv[1], argc == 3 ? std::atof(argv[2]) : 2.0);
}
