#include "server/host/memory_budget.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace runnel {
namespace {

using Hold = MemoryBudget::Hold;

TEST(MemoryBudget, MemoryIsReleasedOnce) {
  MemoryBudget budget(100);
  {
    auto first = budget.take(60);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->bytes(), 60);
    const Hold moved = std::move(*first);
    EXPECT_TRUE(budget.take(40).ok());
    EXPECT_EQ(budget.held(), 60);
  }
  EXPECT_EQ(budget.held(), 0);
}

TEST(MemoryBudget, MoreThanIsFreeMayBeRetriedAndMoreThanTheTotalIsInvalid) {
  MemoryBudget budget(100);
  const auto held = budget.take(60);
  const Status later = budget.take(41).status();
  EXPECT_EQ(later.to_string(),
            "RESOURCE_EXHAUSTED: the call may need 41 bytes, and calls hold 60 of the 100 that "
            "limits.call_bytes allows; try again");
  EXPECT_TRUE(later.retry_after().has_value());
  EXPECT_EQ(
      budget.take(101).status().to_string(),
      "INVALID_ARGUMENT: the call may need 101 bytes, and limits.call_bytes allows 100 for all "
      "calls; ask for less, or raise the limit");
  EXPECT_EQ(budget.held(), 60);
}

TEST(MemoryBudget, AHoldGrowsOnlyByTheMissingBytes) {
  MemoryBudget budget(100);
  Hold hold;
  EXPECT_TRUE(budget.grow(hold, 50).ok());
  EXPECT_TRUE(budget.grow(hold, 30).ok());
  EXPECT_EQ(budget.held(), 50);
  EXPECT_TRUE(budget.grow(hold, 90).ok());
  EXPECT_EQ(hold.bytes(), 90);
  EXPECT_FALSE(budget.grow(hold, 101).ok());
  EXPECT_EQ(hold.bytes(), 90);
  hold = Hold();
  EXPECT_EQ(budget.held(), 0);
}

TEST(MemoryBudget, AHoldShrinksToWhatItNeeds) {
  MemoryBudget budget(100);
  Hold hold = budget.take(70).value();
  MemoryBudget::shrink(hold, 80);
  EXPECT_EQ(hold.bytes(), 70);
  MemoryBudget::shrink(hold, 20);
  EXPECT_EQ(hold.bytes(), 20);
  EXPECT_EQ(budget.held(), 20);
  EXPECT_TRUE(budget.grow(hold, 90).ok());
  hold = Hold();
  MemoryBudget::shrink(hold, 0);
  EXPECT_EQ(budget.held(), 0);
}

TEST(MemoryBudget, AHoldMayOutliveItsBudget) {
  std::optional<Hold> left;
  {
    MemoryBudget budget(10);
    left = budget.take(10).value();
  }
  EXPECT_EQ(left->bytes(), 10);
  left.reset();  // under ASan, this also shows that the counter still exists
}

TEST(MemoryBudget, ManyThreadsNeverTakeMoreThanThereIs) {
  MemoryBudget budget(10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) {
        const auto hold = budget.take(4);
        EXPECT_LE(budget.held(), 10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.held(), 0);
}

}  // namespace
}  // namespace runnel
