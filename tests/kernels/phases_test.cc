#include "kernels/cpu/phases.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

namespace runnel::cpu {
namespace {

constexpr int kPhases = 500;

int tasks_of(int phase) { return 1 + phase % 7; }

// Runs body(phase, task) for all phases and tasks on `threads` threads.
template <typename F>
void go_through(Phases& phases, int threads, const F& body) {
  phases.restart();
  std::vector<std::thread> team;
  for (int thread = 0; thread < threads; ++thread) {
    team.emplace_back([&] {
      for (int phase = 0; phase < kPhases; ++phase) {
        phases.run(phase, tasks_of(phase), [&](int task) { body(phase, task); });
      }
    });
  }
  for (std::thread& thread : team) thread.join();
}

TEST(Phases, EveryTaskRunsOnce) {
  Phases phases;
  for (const int threads : {1, 2, 3, 5}) {
    std::vector<std::vector<std::atomic<int>>> done;
    for (int phase = 0; phase < kPhases; ++phase) done.emplace_back(tasks_of(phase));
    go_through(phases, threads, [&](int phase, int task) { done[phase][task].fetch_add(1); });
    for (const auto& tasks : done) {
      for (const auto& count : tasks) ASSERT_EQ(count.load(), 1) << threads;
    }
  }
}

// Plain memory: a phase reads values of the phase before, and the thread sanitizer watches.
TEST(Phases, APhaseSeesWhatTheOneBeforeWrote) {
  Phases phases;
  for (const int threads : {1, 2, 4}) {
    std::vector<std::vector<int64_t>> sums(kPhases, std::vector<int64_t>(7, 0));
    go_through(phases, threads, [&](int phase, int task) {
      int64_t sum = 1;
      if (phase > 0) {
        for (const int64_t before : sums[phase - 1]) sum = (sum + before) % 1000003;
      }
      sums[phase][task] = sum + task;
    });
    std::vector<std::vector<int64_t>> expected(kPhases, std::vector<int64_t>(7, 0));
    for (int phase = 0; phase < kPhases; ++phase) {
      int64_t sum = 1;
      if (phase > 0) {
        for (const int64_t before : expected[phase - 1]) sum = (sum + before) % 1000003;
      }
      for (int task = 0; task < tasks_of(phase); ++task) expected[phase][task] = sum + task;
    }
    EXPECT_EQ(sums, expected) << threads;
  }
}

TEST(Phases, AThreadThatRepeatsPhasesRunsNoTaskAgain) {
  Phases phases;
  std::atomic<int> calls{0};
  for (int round = 0; round < 2; ++round) {
    if (round == 0) phases.restart();
    for (int phase = 0; phase < kPhases; ++phase) {
      phases.run(phase, 3, [&](int) { calls.fetch_add(1); });
    }
  }
  EXPECT_EQ(calls.load(), 3 * kPhases);
}

// A thread waits for another one's long task, even if it has gone to sleep.
TEST(Phases, WaitsForATaskUnderWay) {
  Phases phases;
  for (int round = 0; round < 5; ++round) {
    phases.restart();
    std::latch begun(2);
    int written = 0;
    const auto sequence = [&] {
      phases.run(0, 2, [&](int task) {
        begun.arrive_and_wait();
        if (task == 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(3));  // the other goes to sleep
        written = 7;
      });
      EXPECT_EQ(written, 7);
    };
    std::thread other(sequence);
    sequence();
    other.join();
  }
}

}  // namespace
}  // namespace runnel::cpu
