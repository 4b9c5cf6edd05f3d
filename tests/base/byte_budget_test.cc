#include "base/byte_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace runnel {
namespace {

TEST(ByteBudget, GivesWhatItHas) {
  ByteBudget budget(100);
  auto first = budget.take(60);
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(budget.take(41).has_value());
  {
    const auto second = budget.take(40);
    EXPECT_TRUE(second.has_value());
    EXPECT_EQ(budget.taken(), 100);
    EXPECT_FALSE(budget.take(1).has_value());
  }
  EXPECT_EQ(budget.taken(), 60);
  first.reset();
  EXPECT_EQ(budget.taken(), 0);
  EXPECT_FALSE(budget.take(int64_t{1} << 62).has_value());
}

TEST(ByteBudget, AMovedShareIsGivenBackOnce) {
  ByteBudget budget(10);
  {
    ByteBudget::Share kept;
    auto share = budget.take(4);
    kept = std::move(*share);
    share.reset();
    EXPECT_EQ(budget.taken(), 4);
    EXPECT_EQ(kept.bytes(), 4);
  }
  EXPECT_EQ(budget.taken(), 0);
}

TEST(ByteBudget, NeverGivesTooMuchToManyThreads) {
  ByteBudget budget(10);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20'000; ++k) {
        const auto share = budget.take(3);
        EXPECT_LE(budget.taken(), 10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.taken(), 0);
}

}  // namespace
}  // namespace runnel
