#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cpu/machine.h"

namespace runnel::cpu {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 4, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int tasks : {0, 1, 2, 3, 5, 64, 1000}) {
      std::vector<std::atomic<int>> done(tasks);
      pool.for_each(tasks, [&](int task, int) { done[task].fetch_add(1); });
      for (const auto& count : done) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, NoTwoTasksShareAThreadNumberAtATime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> busy(4);
  std::atomic<int> clashes{0};
  for (int round = 0; round < 200; ++round) {
    pool.for_each(16, [&](int, int thread) {
      ASSERT_LT(thread, 4);
      if (busy[thread].fetch_add(1) != 0) clashes.fetch_add(1);
      busy[thread].fetch_sub(1);
    });
  }
  EXPECT_EQ(clashes.load(), 0);
}

TEST(ThreadPool, TheCallerSeesTheWritesOfTasks) {
  ThreadPool pool(4);
  std::vector<int64_t> cells(256, 0);  // not atomic: the thread sanitizer watches
  for (int round = 0; round < 3000; ++round) {
    const int tasks = 1 + round % 9;
    pool.for_each(tasks, [&](int task, int) { cells[task] += task + round; });
  }
  int64_t total = 0;
  for (const int64_t cell : cells) total += cell;
  int64_t expected = 0;
  for (int round = 0; round < 3000; ++round) {
    for (int task = 0; task < 1 + round % 9; ++task) expected += task + round;
  }
  EXPECT_EQ(total, expected);
}

// Tasks that wait for each other finish only if all workers that they need wake up.
TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than a worker spins
    const int tasks = 2 + round % 2;
    std::latch met(tasks);
    pool.for_each(tasks, [&](int, int) { met.arrive_and_wait(); });
    EXPECT_TRUE(met.try_wait());
  }
}

// Two tasks that wait for each other finish only if two threads run them.
TEST(ThreadPool, TasksRunAtTheSameTime) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::latch met(2);
    pool.for_each(2, [&](int, int) { met.arrive_and_wait(); });
    EXPECT_TRUE(met.try_wait());
  }
}

TEST(ThreadPool, OneThreadRunsOnTheCaller) {
  ThreadPool pool(1);
  const std::thread::id caller = std::this_thread::get_id();
  pool.for_each(8, [&](int, int thread) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(thread, 0);
  });
}

TEST(ThreadPool, StartsAndStopsAtOnce) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(1 + round % 5);
    if (round % 2 == 0) pool.for_each(3, [](int, int) {});
  }
  SUCCEED() << "every destructor returned: no worker missed that its pool stops";
}

// Measures the processor time of this process, so other processes do not count. Before they sleep,
// the workers spin for less than a millisecond.
TEST(ThreadPool, IdleWorkersUseNoProcessorTime) {
  ThreadPool pool(4);
  pool.for_each(8, [](int, int) {});
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double used = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used, 0.05);
}

TEST(Machine, HasACore) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace runnel::cpu
