#include "bench/machine_limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/cpu/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "bench/tile_products.h"
#endif

namespace runnel {
namespace {

constexpr int kRuns = 5;                 // the best one counts
constexpr double kSecondsOfARun = 0.02;  // at least
constexpr int kAccumulators = 16;        // independent sums, enough to hide any latency
constexpr int64_t kStreams = 8;

// Sixteen numbers. The compiler splits them where the instruction set has narrower registers.
using Wide = float __attribute__((vector_size(64)));

// A loop over `data` with work in proportion to `count`. Every run does the same work, so that runs
// can be repeated and timed.
using Run = float (*)(Wide* data, int64_t count);

// The bodies are inlined into one function for each instruction set.
[[gnu::always_inline]] inline float multiply_add(Wide* data, int64_t count) {
  Wide sums[kAccumulators];
  for (int i = 0; i < kAccumulators; ++i) sums[i] = data[i];
  const Wide factor = data[0] * 0.0F + 0.999F;
  for (int64_t n = 0; n < count; ++n) {
    for (Wide& sum : sums) sum = sum * factor + factor;
  }
  for (int i = 1; i < kAccumulators; ++i) sums[0] += sums[i];
  return sums[0][0];
}

[[gnu::always_inline]] inline float read_all(Wide* data, int64_t count) {
  Wide sums[kStreams] = {};
  for (int64_t n = 0; n < count; n += kStreams) {
    for (int64_t i = 0; i < kStreams; ++i) sums[i] += data[n + i];
  }
  for (int64_t i = 1; i < kStreams; ++i) sums[0] += sums[i];
  return sums[0][0];
}

[[gnu::always_inline]] inline float update_all(Wide* data, int64_t count) {
  for (int64_t n = 0; n < count; ++n) data[n] = data[n] * 0.5F + 1.0F;
  return data[0][0];
}

struct Runs {
  Run multiply_add, read_all, update_all;
  Run dot_bf16;  // null if the machine has no such instruction
};

float multiply_add_plain(Wide* data, int64_t count) { return multiply_add(data, count); }
float read_plain(Wide* data, int64_t count) { return read_all(data, count); }
float update_plain(Wide* data, int64_t count) { return update_all(data, count); }

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] float multiply_add_avx2(Wide* data, int64_t count) {
  return multiply_add(data, count);
}
[[gnu::target("avx2,fma")]] float read_avx2(Wide* data, int64_t count) {
  return read_all(data, count);
}
[[gnu::target("avx2,fma")]] float update_avx2(Wide* data, int64_t count) {
  return update_all(data, count);
}
[[gnu::target("avx512f,fma")]] float multiply_add_avx512(Wide* data, int64_t count) {
  return multiply_add(data, count);
}
[[gnu::target("avx512f,fma")]] float read_avx512(Wide* data, int64_t count) {
  return read_all(data, count);
}
[[gnu::target("avx512f,fma")]] float update_avx512(Wide* data, int64_t count) {
  return update_all(data, count);
}

[[gnu::target("avx512f,avx512bf16")]] float dot_bf16(Wide* data, int64_t count) {
  __m512 sums[kAccumulators];
  for (int i = 0; i < kAccumulators; ++i) sums[i] = reinterpret_cast<__m512*>(data)[i];
  const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3C003C00));  // 2^-7, twice
  for (int64_t n = 0; n < count; ++n) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, factor, factor);
  }
  for (int i = 1; i < kAccumulators; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

float tiles_of_bf16(Wide* data, int64_t count) {
  return multiply_tiles(data, count * static_cast<int64_t>(sizeof(Wide)));
}
#endif

Runs widest_runs() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    return {multiply_add_avx512, read_avx512, update_avx512,
            __builtin_cpu_supports("avx512bf16") ? dot_bf16 : nullptr};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {multiply_add_avx2, read_avx2, update_avx2, nullptr};
  }
#endif
  return {multiply_add_plain, read_plain, update_plain, nullptr};
}

struct Free {
  void operator()(Wide* data) const { std::free(data); }
};
using Data = std::unique_ptr<Wide, Free>;

// Memory on huge pages if the system has them. It is not touched yet.
Data make_data(int64_t bytes) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const auto rounded = static_cast<size_t>((bytes + kHugePage - 1) / kHugePage * kHugePage);
  Data data(static_cast<Wide*>(std::aligned_alloc(kHugePage, rounded)));
  if (data == nullptr) throw std::bad_alloc();
  madvise(data.get(), rounded, MADV_HUGEPAGE);
  return data;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The seconds that `times` runs in a row take.
double seconds_of(Run run, Wide* data, int64_t count, int64_t times) {
  volatile float sink = 0;  // so that the compiler keeps the run
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < times; ++i) sink = sink + run(data, count);
  return seconds_since(start);
}

// The maximum rate, in runs per second, of all threads together, each over `bytes` of its own. A
// measurement lasts until the last thread is done, because the rate of a thread that runs while
// others are idle must not be added. Throws std::system_error if a thread cannot be started.
double rate_of(Run run, int threads, int64_t bytes, int64_t count) {
  std::array<std::atomic<double>, kRuns> rates{};
  std::vector<Data> data;
  for (int thread = 0; thread < threads; ++thread) data.push_back(make_data(bytes));
  std::barrier gate(threads);
  const auto work = [&](int thread) {
    Wide* own = data[thread].get();
    std::fill_n(reinterpret_cast<float*>(own), bytes / 4, 1.0F);  // first touch by its own thread
    const double once = seconds_of(run, own, count, 1);
    const auto times = static_cast<int64_t>(kSecondsOfARun / std::max(once, 1e-9)) + 1;
    for (std::atomic<double>& rate : rates) {
      gate.arrive_and_wait();
      const auto start = std::chrono::steady_clock::now();
      seconds_of(run, own, count, times);
      gate.arrive_and_wait();
      rate.fetch_add(static_cast<double>(times) / seconds_since(start));
    }
  };
  std::latch begin(1);
  bool all_started = false;  // written before `begin`
  const auto work_with_all = [&](int thread) {
    begin.wait();
    if (all_started) work(thread);  // otherwise the gate would never open
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int thread = 1; thread < threads; ++thread) others.emplace_back(work_with_all, thread);
    } catch (...) {
      begin.count_down();
      throw;
    }
    all_started = true;
    begin.count_down();
    work(0);
  }
  return *std::max_element(rates.begin(), rates.end());
}

// Billions of bytes per second.
double bandwidth(Run run, int threads, int64_t bytes, int ways) {
  return rate_of(run, threads, bytes, bytes / static_cast<int64_t>(sizeof(Wide))) *
         static_cast<double>(bytes * ways) / 1e9;
}

// Billions of operations per second. In each turn, a thread does `operations` on each number.
double arithmetic(Run run, int threads, int operations) {
  constexpr int64_t kTurns = 100000;
  const int64_t numbers = kTurns * kAccumulators * static_cast<int64_t>(sizeof(Wide) / 4);
  return rate_of(run, threads, kAccumulators * sizeof(Wide), kTurns) *
         static_cast<double>(numbers * operations) / 1e9;
}

// Billions of tile operations per second; 0 without tiles. Each thread reads weights from its L2.
double tiles([[maybe_unused]] int threads) {
#if defined(__x86_64__)
  if (!cpu::may_use_tiles()) return 0;
  constexpr int64_t kBytes = int64_t{1} << 19;
  const double products = static_cast<double>(kBytes / kTileStepBytes * kTileStepProducts);
  return rate_of(tiles_of_bf16, threads, kBytes, kBytes / static_cast<int64_t>(sizeof(Wide))) *
         products * 2 / 1e9;
#else
  return 0;
#endif
}

}  // namespace

Result<MachineLimits> measure_limits(int threads) {
  const Runs runs = widest_runs();
  const auto mib = [](double count) { return static_cast<int64_t>(count * (1 << 20)); };
  try {
    return MachineLimits{
        .threads = threads,
        .fp32_gflops = arithmetic(runs.multiply_add, threads, 2),
        .bf16_gflops = runs.dot_bf16 == nullptr ? 0 : arithmetic(runs.dot_bf16, threads, 4),
        .tile_gflops = tiles(threads),
        .l2_gbps = bandwidth(runs.read_all, threads, mib(0.5), 1),
        .l3_gbps = bandwidth(runs.read_all, threads, mib(6), 1),
        .dram_gbps = bandwidth(runs.read_all, threads, mib(192), 1),
        .dram_update_gbps = bandwidth(runs.update_all, threads, mib(192), 2)};
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  "not enough memory to measure it: 192 MiB a thread are needed");
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted, "cannot start " + std::to_string(threads) +
                                                " threads (" + error.what() +
                                                "); allow the process more of them: ulimit -u, or "
                                                "the pids limit of its container");
  }
}

}  // namespace runnel
