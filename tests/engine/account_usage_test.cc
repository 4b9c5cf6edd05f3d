#include "engine/account_usage.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace runnel {
namespace {

constexpr TimePoint kStart{std::chrono::seconds(1000)};
constexpr Duration kSecond = std::chrono::seconds(1);

TEST(AccountUsage, AllowsCallsUpToTheLimit) {
  AccountUsage usage;
  EXPECT_TRUE(usage.begin_call(2));
  EXPECT_TRUE(usage.begin_call(2));
  EXPECT_FALSE(usage.begin_call(2));
  usage.end_call();
  EXPECT_TRUE(usage.begin_call(2));
  EXPECT_TRUE(usage.begin_call(3)) << "a quota that has grown counts those that run";
}

TEST(AccountUsage, ManyThreadsNeverExceedTheCallLimit) {
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

TEST(AccountUsage, CallsMayUseOneSecondOfTheQuotaInAdvance) {
  AccountUsage usage;
  usage.set_values_per_second(100, kStart);
  EXPECT_LE(usage.behind(kStart), Duration(0));
  usage.charge(100, kStart);
  EXPECT_LE(usage.behind(kStart), Duration(0));
  usage.charge(50, kStart);
  EXPECT_EQ(usage.behind(kStart), kSecond / 2);
  EXPECT_LE(usage.behind(kStart + kSecond / 2), Duration(0));
}

TEST(AccountUsage, UnusedQuotaIsSavedForAtMostASecond) {
  AccountUsage usage;
  usage.set_values_per_second(100, kStart);
  usage.charge(100, kStart);
  usage.charge(300, kStart + 1000 * kSecond);
  EXPECT_EQ(usage.behind(kStart + 1000 * kSecond), 2 * kSecond);
}

TEST(AccountUsage, WithoutARateValuesAreNotCounted) {
  AccountUsage usage;
  usage.charge(1'000'000, kStart);
  usage.set_values_per_second(100, kStart);
  EXPECT_LE(usage.behind(kStart), Duration(0));
  usage.charge(300, kStart);
  EXPECT_EQ(usage.behind(kStart), 2 * kSecond);
  usage.set_values_per_second(0, kStart);
  EXPECT_LE(usage.behind(kStart), Duration(0));
}

TEST(AccountUsage, ANewRateAppliesToTheValuesThatWereHadAlready) {
  AccountUsage usage;
  usage.set_values_per_second(100, kStart);
  usage.charge(1100, kStart);  // 100 of them in advance
  EXPECT_EQ(usage.behind(kStart), 10 * kSecond);
  usage.set_values_per_second(1000, kStart);
  EXPECT_EQ(usage.behind(kStart), kSecond);
  usage.set_values_per_second(250, kStart + kSecond / 2);
  EXPECT_EQ(usage.behind(kStart + kSecond / 2), 2 * kSecond);
  usage.set_values_per_second(0, kStart + kSecond / 2);
  usage.set_values_per_second(1, kStart + kSecond / 2);
  EXPECT_LE(usage.behind(kStart + kSecond / 2), Duration(0)) << "none are owed without a rate";
}

TEST(AccountUsage, AllowsStatesUpToTheLimitAllOrNone) {
  AccountUsage usage;
  EXPECT_TRUE(usage.begin_states(2, 3));
  EXPECT_FALSE(usage.begin_states(2, 3));
  EXPECT_TRUE(usage.begin_states(1, 3));
  EXPECT_EQ(usage.states(), 3);
  usage.end_state();
  EXPECT_TRUE(usage.begin_states(1, 3));
}

}  // namespace
}  // namespace runnel
