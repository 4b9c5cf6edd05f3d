#include "models/begin.h"

#include <gtest/gtest.h>

#include <vector>

namespace runnel {
namespace {

TEST(Begin, IsAFixedValueOrDrawnFromTheHistogram) {
  EXPECT_EQ(begin_value({.value = 7, .histogram = {}}, 1, 0), 7);
  Begin begin{.value = 0, .histogram = std::vector<float>(256, 0.0F)};
  begin.histogram[10] = 0.25F;
  begin.histogram[200] = 0.75F;
  int low = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const int32_t value = begin_value(begin, seed, 3);
    ASSERT_TRUE(value == 10 || value == 200);
    low += value == 10 ? 1 : 0;
  }
  EXPECT_NEAR(low, 1000, 120);  // more than four standard deviations
}

}  // namespace
}  // namespace runnel
