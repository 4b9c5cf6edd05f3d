#include "base/limits.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace runnel {
namespace {

TEST(Limits, EachHasItsOwnNameAndADefaultWithinItsRange) {
  std::set<std::string> names;
  for (const Limit* limit : all_limits()) {
    EXPECT_TRUE(names.insert(limit->name).second) << limit->name;
    EXPECT_GE(limit->default_value, limit->min) << limit->name;
    EXPECT_LE(limit->default_value, limit->max) << limit->name;
    EXPECT_STRNE(limit->what, "");
  }
}

}  // namespace
}  // namespace runnel
