#include "base/limits.h"

#include <gtest/gtest.h>

#include <set>

namespace runnel {
namespace {

TEST(Limits, EachHasItsOwnNameAndADefaultWithinItsRange) {
  std::set<std::string> names;
  for (const Limit* limit : all_limits()) {
    EXPECT_TRUE(names.insert(limit->name).second) << limit->name;
    EXPECT_EQ(limit_error(*limit, limit->default_value), "") << limit->name;
    EXPECT_EQ(limit_error(*limit, limit->min), "");
    EXPECT_EQ(limit_error(*limit, limit->max), "");
    EXPECT_STRNE(limit->what, "");
  }
}

TEST(Limits, AnErrorNamesTheLimitAndItsRange) {
  EXPECT_EQ(limit_error(limits::kStepsPerLaunch, 65),
            "steps_per_launch is 65; it must be between 0 and 64");
  EXPECT_NE(limit_error(limits::kBatchRows, 0), "");
}

}  // namespace
}  // namespace runnel
