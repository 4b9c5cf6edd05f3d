#include "storage/store_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <new>
#include <optional>
#include <semaphore>
#include <vector>

#include "tests/base/eventually.h"

namespace runnel {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(1);

TEST(StoreThreads, ReturnsResultsAndFailures) {
  std::atomic<int> sum{0};
  std::atomic<int> failed{0};
  {
    StoreThreads threads(2, 100, kTimeout, real_clock());
    for (int i = 1; i <= 10; ++i) {
      threads.run<int>([i] { return Result<int>(i); }, [&](const Result<int>& n) { sum += *n; });
    }
    threads.run<int>(
        []() -> Result<int> { throw std::bad_alloc(); },
        [&](const Result<int>& n) { failed += n.status().code() == Code::kResourceExhausted; });
  }
  EXPECT_EQ(sum, 55) << "all that was given is done before the threads end";
  EXPECT_EQ(failed, 1);
}

TEST(StoreThreads, CallersWaitAtMostTheTimeout) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::latch may_end(1);
  std::latch runs(1);
  std::atomic<int> late{0};
  std::atomic<int> ran{0};
  std::vector<Status> ends;
  {
    StoreThreads threads(1, 100, kTimeout, clock);
    threads.run<int>(
        [&]() -> Result<int> {
          runs.count_down();
          may_end.wait();
          return 3;
        },
        [&](const Result<int>& n) { ends.push_back(n.status()); }, [&](int n) { late += n; });
    threads.run<int>([&]() -> Result<int> { return ++ran; },
                     [&](const Result<int>& n) { ends.push_back(n.status()); });
    runs.wait();
    threads.tend();
    EXPECT_TRUE(ends.empty());
    clock.advance(kTimeout);
    threads.tend();
    threads.tend();
    may_end.count_down();
  }
  ASSERT_EQ(ends.size(), 2U);
  for (const Status& status : ends) {
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(status.reason(), "storage");
    EXPECT_THAT(status.message(), ::testing::HasSubstr("within 1000 ms"));
  }
  EXPECT_EQ(late, 3) << "the outcome that nobody waited for";
  EXPECT_EQ(ran, 0) << "a job that came too late is not begun";
}

// A state may take longer than the timeout, but not one of its pieces.
TEST(StoreThreads, ProgressBeginsTheTimeoutAgain) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::counting_semaphore<> may_continue(0);
  std::counting_semaphore<> has_continued(0);
  std::vector<Result<int>> ends;
  {
    StoreThreads threads(1, 100, kTimeout, clock);
    threads.run_in_pieces<int>(
        [&](const StoreThreads::Progress& progress) -> Result<int> {
          for (int piece = 0; piece < 6; ++piece) {
            may_continue.acquire();
            if (piece < 5) progress();
            has_continued.release();
          }
          return 5;
        },
        [&](const Result<int>& n) { ends.push_back(n); });
    for (int piece = 0; piece < 5; ++piece) {
      clock.advance(kTimeout - std::chrono::milliseconds(1));
      threads.tend();
      may_continue.release();
      has_continued.acquire();
    }
    EXPECT_TRUE(ends.empty());
    clock.advance(kTimeout);
    threads.tend();
    may_continue.release();
  }
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].status().code(), Code::kUnavailable) << "the last piece took too long";
}

// Large states must not keep calls from beginning and leases from being renewed.
TEST(StoreThreads, WorkInPiecesLeavesThreadsToOtherJobs) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::array<std::counting_semaphore<>, 3> may_continue = {
      std::counting_semaphore<>(0), std::counting_semaphore<>(0), std::counting_semaphore<>(0)};
  std::counting_semaphore<> has_begun(0);
  std::latch ran(1);
  std::atomic<int> sum{0};
  std::atomic<int> failed{0};
  const auto add = [&](const Result<int>& n) { n.ok() ? sum += *n : ++failed; };
  {
    StoreThreads threads(4, 100, kTimeout, clock);
    for (int state = 0; state < 3; ++state) {
      threads.run_in_pieces<int>(
          [&, state](const StoreThreads::Progress& progress) -> Result<int> {
            has_begun.release();
            for (int piece = 0; piece < 3; ++piece) {
              may_continue[state].acquire();
              progress();
              has_begun.release();
            }
            return 1;
          },
          add);
    }
    has_begun.acquire();
    has_begun.acquire();
    threads.run<int>(
        [&]() -> Result<int> {
          ran.count_down();
          return 10;
        },
        add);
    ran.wait();
    EXPECT_FALSE(has_begun.try_acquire()) << "the third state waits";
    for (int piece = 0; piece < 2; ++piece) {  // of each of the first two states
      clock.advance(kTimeout - std::chrono::milliseconds(1));
      may_continue[0].release();
      may_continue[1].release();
      has_begun.acquire();
      has_begun.acquire();
      threads.tend();
    }
    EXPECT_EQ(failed, 0) << "it waits while the others make progress";
    for (auto& state : may_continue) state.release(3);
  }
  EXPECT_EQ(sum, 13);

  std::latch may_end(1);
  std::latch runs(1);
  StoreThreads threads(1, 100, kTimeout, clock);
  threads.run_in_pieces<int>(
      [&](const StoreThreads::Progress&) -> Result<int> {
        runs.count_down();
        may_end.wait();
        return 1;
      },
      add);
  runs.wait();
  threads.run_in_pieces<int>([](const StoreThreads::Progress&) -> Result<int> { return 1; }, add);
  clock.advance(kTimeout);
  threads.tend();
  EXPECT_EQ(failed, 2) << "nothing makes progress";
  may_end.count_down();
}

TEST(StoreThreads, JobsInTurnRunOneAtATimeWhileOtherJobsRun) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::atomic<int> sum{0};
  std::latch other_ran(1);
  {
    StoreThreads threads(4, 100, kTimeout, real_clock());
    for (int i = 1; i <= 10; ++i) {
      threads.run_in_turn<int>(
          [&, i]() -> Result<int> {
            most = std::max<int>(most, ++running);
            other_ran.wait();
            --running;
            return i;
          },
          [&](const Result<int>& n) { sum += *n; });
    }
    threads.run<int>(
        [&]() -> Result<int> {
          other_ran.count_down();
          return 100;
        },
        [&](const Result<int>& n) { sum += *n; });
  }
  EXPECT_EQ(most, 1);
  EXPECT_EQ(sum, 155) << "all are done before the threads end";
}

TEST(StoreThreads, AJobInTurnWaitsNoLongerThanTheTimeout) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::latch may_end(1);
  std::latch runs(1);
  std::vector<Code> ends;
  {
    StoreThreads threads(2, 100, kTimeout, clock);
    threads.run_in_turn<int>(
        [&]() -> Result<int> {
          runs.count_down();
          may_end.wait();
          return 1;
        },
        [&](const Result<int>& n) { ends.push_back(n.status().code()); });
    runs.wait();
    threads.run_in_turn<int>([]() -> Result<int> { return 2; },
                             [&](const Result<int>& n) { ends.push_back(n.status().code()); });
    clock.advance(kTimeout);
    threads.tend();
    may_end.count_down();
  }
  EXPECT_EQ(ends, std::vector<Code>(2, Code::kUnavailable));
}

TEST(StoreThreads, AJobThatTimesOutReleasesItsObjects) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::latch may_end(1);
  std::latch runs(1);
  const auto held = std::make_shared<int>(3);
  {
    StoreThreads threads(1, 100, kTimeout, clock);
    threads.run<bool>(
        [&]() -> Result<bool> {
          runs.count_down();
          may_end.wait();
          return true;
        },
        [](const Result<bool>&) {});
    runs.wait();
    threads.run<bool>([held]() -> Result<bool> { return *held == 3; }, [](const Result<bool>&) {});
    clock.advance(kTimeout);
    threads.tend();
    EXPECT_EQ(held.use_count(), 1) << "while the only thread hangs";
    may_end.count_down();
  }
}

TEST(StoreThreads, WaitingForAHangingJobIsBounded) {
  std::latch may_end(1);
  StoreThreads threads(2, 100, kTimeout, real_clock());
  EXPECT_TRUE(threads.wait_until_idle(kTimeout)) << "there is no job";
  threads.run<bool>(
      [&]() -> Result<bool> {
        may_end.wait();
        return true;
      },
      [](const Result<bool>&) {});
  EXPECT_FALSE(threads.wait_until_idle(std::chrono::milliseconds(1)));
  may_end.count_down();
  EXPECT_TRUE(threads.wait_until_idle(std::chrono::minutes(1)));
}

TEST(StoreThreads, TheQueueIsBounded) {
  std::latch may_end(1);
  std::atomic<int> done{0};
  std::optional<Status> refused;
  {
    StoreThreads threads(1, 2, kTimeout, real_clock());
    for (int i = 0; i < 2; ++i) {
      threads.run<bool>(
          [&]() -> Result<bool> {
            may_end.wait();
            return true;
          },
          [&](const Result<bool>&) { ++done; });
    }
    threads.run<bool>([]() -> Result<bool> { return true; },
                      [&](const Result<bool>& n) { refused = n.status(); });
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->code(), Code::kResourceExhausted);
    may_end.count_down();
  }
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace runnel
