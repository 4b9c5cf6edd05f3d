#include "engine/account_usage.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace runnel {
namespace {

constexpr TimePoint kStart{std::chrono::seconds(1000)};
constexpr Duration kSecond = std::chrono::seconds(1);

TEST(AccountUsage, CallsUpToTheMost) {
  AccountUsage usage;
  EXPECT_TRUE(usage.begin_call(2));
  EXPECT_TRUE(usage.begin_call(2));
  EXPECT_FALSE(usage.begin_call(2));
  usage.end_call();
  EXPECT_TRUE(usage.begin_call(2));
  EXPECT_TRUE(usage.begin_call(3)) << "a quota that has grown counts those that run";
}

TEST(AccountUsage, ManyThreadsNeverHaveMoreCallsThanTheMost) {
  AccountUsage usage;
  std::atomic<int> running{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 2000; ++k) {
        if (!usage.begin_call(2)) continue;
        const int now = ++running;
        if (now > most) most = now;
        --running;
        usage.end_call();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 2);
}

TEST(AccountUsage, ASecondAheadIsFreeAndTheRestIsWaitedFor) {
  AccountUsage usage;
  EXPECT_LE(usage.behind(kStart), Duration(0));
  usage.charge(100, 100, kStart);
  EXPECT_LE(usage.behind(kStart), Duration(0));
  usage.charge(50, 100, kStart);
  EXPECT_EQ(usage.behind(kStart), kSecond / 2);
  EXPECT_LE(usage.behind(kStart + kSecond / 2), Duration(0));
}

TEST(AccountUsage, WhatIsNotUsedIsNotSavedForLongerThanASecond) {
  AccountUsage usage;
  usage.charge(100, 100, kStart);
  usage.charge(300, 100, kStart + 1000 * kSecond);
  EXPECT_EQ(usage.behind(kStart + 1000 * kSecond), 2 * kSecond);
}

}  // namespace
}  // namespace runnel
