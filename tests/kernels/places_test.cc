#include "kernels/cpu/places.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace runnel::cpu {
namespace {

TEST(Places, NeverGivesMorePlacesThanItHas) {
  constexpr int kPlaces = 3;
  Places places(kPlaces);
  std::atomic<int> held{0};
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int count = 1 + (t + i) % kPlaces;
        const Places::Hold hold(places, count);
        if (held.fetch_add(count) + count > kPlaces) ++faults;
        held.fetch_sub(count);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(faults, 0);
}

TEST(Places, TwoThreadsHoldOnePlaceEachAtTheSameTime) {
  Places places(2);
  std::mutex mutex;
  std::condition_variable came;
  int holding = 0;
  const auto meet = [&] {
    const Places::Hold hold(places, 1);
    std::unique_lock lock(mutex);
    ++holding;
    came.notify_one();
    EXPECT_TRUE(came.wait_for(lock, std::chrono::minutes(1), [&] { return holding == 2; }))
        << "the other thread got its place only once this one had given back its own";
  };
  std::thread other(meet);
  meet();
  other.join();
}

// A thread that asks for all places gets them although others keep asking for one. This takes less
// than a second, or a few on a busy machine. Without the order it might wait until the others end.
TEST(Places, AreGivenInTheOrderInWhichTheyAreAskedFor) {
  Places places(2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> ones;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  for (int t = 0; t < 3; ++t) {
    ones.emplace_back([&] {
      while (!stop && std::chrono::steady_clock::now() < deadline) {
        const Places::Hold hold(places, 1);
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    const Places::Hold hold(places, 2);
  }
  EXPECT_LT(std::chrono::steady_clock::now(), deadline)
      << "it got both places only once the others had ended";
  stop = true;
  for (std::thread& one : ones) one.join();
}

}  // namespace
}  // namespace runnel::cpu
