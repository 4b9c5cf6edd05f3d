#include "engine/state_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace runnel {
namespace {

TEST(StatePool, LeasesEverySlotOnceAndThenNone) {
  StatePool pool(3);
  std::set<SlotId> leased;
  for (int i = 0; i < 3; ++i) leased.insert(*pool.lease());
  EXPECT_EQ(leased, (std::set<SlotId>{0, 1, 2}));
  EXPECT_EQ(pool.free(), 0);
  EXPECT_FALSE(pool.lease().has_value());
}

TEST(StatePool, AReleasedSlotCanBeLeasedAgain) {
  StatePool pool(1);
  const SlotId slot = *pool.lease();
  pool.release(slot);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.lease(), slot);
}

TEST(StatePool, ClaimedStatesAreNotFreeForOthers) {
  StatePool pool(3);
  EXPECT_TRUE(pool.claim(2));
  EXPECT_FALSE(pool.claim(2));
  EXPECT_EQ(pool.unclaimed(), 1) << "a claim that failed holds nothing";
  EXPECT_TRUE(pool.claim(1));
  EXPECT_FALSE(pool.claim(1));
  pool.give_up(2);
  const SlotId slot = *pool.lease();
  EXPECT_EQ(pool.unclaimed(), 1);
  pool.release(slot);
  EXPECT_EQ(pool.unclaimed(), 2);
}

TEST(StatePool, ALeaseMayTakeAClaimedState) {
  StatePool pool(1);
  EXPECT_TRUE(pool.claim(1));
  EXPECT_TRUE(pool.lease().has_value());
  EXPECT_EQ(pool.unclaimed(), -1);
  EXPECT_FALSE(pool.claim(1));
  pool.give_up(1);
  EXPECT_EQ(pool.unclaimed(), 0);
}

TEST(StatePool, ClaimsOfManyThreadsNeverExceedTheSlots) {
  constexpr int kSlots = 8;
  constexpr int kThreads = 4;
  StatePool pool(kSlots);
  std::atomic<int> held{0};
  std::atomic<bool> too_many{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20000; ++i) {
        const int slots = 1 + (i + t) % 5;
        if (!pool.claim(slots)) continue;
        if (held.fetch_add(slots) + slots > kSlots) too_many = true;
        held.fetch_sub(slots);
        pool.give_up(slots);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(too_many);
  EXPECT_EQ(pool.unclaimed(), kSlots);
}

TEST(StatePool, ASlotSetAsideCountsAsFreeAndIsNotLeased) {
  StatePool pool(2);
  const SlotId leased = *pool.lease();
  pool.release(leased);
  EXPECT_EQ(pool.set_aside(), leased) << "the one that was released last";
  EXPECT_EQ(pool.free(), 2);
  EXPECT_EQ(pool.unclaimed(), 2);
  EXPECT_NE(pool.lease(), leased);
  EXPECT_TRUE(pool.all_aside());
  EXPECT_FALSE(pool.lease().has_value());
  EXPECT_FALSE(pool.set_aside().has_value());
  pool.put_back(leased);
  EXPECT_EQ(pool.lease(), leased);
  EXPECT_EQ(pool.free(), 0);
}

TEST(StatePool, ALentSlotIsFreeAndStaysWithItsHolder) {
  StatePool pool(2);
  const SlotId lent = *pool.lease();
  pool.lend();
  EXPECT_EQ(pool.free(), 2);
  EXPECT_TRUE(pool.claim(2));
  pool.give_up(2);
  EXPECT_NE(pool.lease(), lent);
  EXPECT_EQ(pool.unclaimed(), 1);
  EXPECT_FALSE(pool.lease().has_value()) << "before it is released";
  pool.take_back();
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.unclaimed(), 0);
  pool.release(lent);
  EXPECT_EQ(pool.lease(), lent);
}

TEST(StatePoolDeathTest, ReleasingTwiceStopsTheProcess) {
  StatePool pool(2);
  const SlotId slot = *pool.lease();
  pool.release(slot);
  EXPECT_DEATH(pool.release(slot), "released once");
  EXPECT_DEATH(pool.release(7), "released once");
}

}  // namespace
}  // namespace runnel
