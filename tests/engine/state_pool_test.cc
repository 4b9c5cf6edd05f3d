#include "engine/state_pool.h"

#include <gtest/gtest.h>

#include <set>

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

TEST(StatePoolDeathTest, ReleasingTwiceStopsTheProcess) {
  StatePool pool(2);
  const SlotId slot = *pool.lease();
  pool.release(slot);
  EXPECT_DEATH(pool.release(slot), "released once");
  EXPECT_DEATH(pool.release(7), "released once");
}

}  // namespace
}  // namespace runnel
