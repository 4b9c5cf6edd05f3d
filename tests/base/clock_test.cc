#include "base/clock.h"

#include <gtest/gtest.h>

namespace runnel {
namespace {

TEST(Clock, RealTimeGoesForward) {
  const Clock clock;
  EXPECT_FALSE(clock.is_virtual());
  const TimePoint before = clock.now();
  EXPECT_GE(clock.now(), before);
}

TEST(Clock, VirtualTimeStandsStillUntilAdvanced) {
  Clock clock(TimePoint(std::chrono::seconds(5)));
  EXPECT_TRUE(clock.is_virtual());
  EXPECT_EQ(clock.now(), TimePoint(std::chrono::seconds(5)));
  clock.advance(std::chrono::milliseconds(20));
  EXPECT_EQ(clock.now(), TimePoint(std::chrono::milliseconds(5020)));
  EXPECT_EQ(clock.unix_time(), 5);
}

}  // namespace
}  // namespace runnel
