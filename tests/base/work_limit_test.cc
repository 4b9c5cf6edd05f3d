#include "base/work_limit.h"

#include <gtest/gtest.h>

#include <thread>

namespace runnel {
namespace {

using std::chrono::milliseconds;

TEST(WorkLimit, CountsProcessorTimeAndNotTimeThatPasses) {
  WorkLimit limit(milliseconds(20));
  EXPECT_FALSE(limit.is_over());
  std::this_thread::sleep_for(milliseconds(60));
  EXPECT_FALSE(limit.is_over()) << "a thread that sleeps uses none";
  const Duration begin = WorkLimit::processor_time();
  while (!limit.is_over()) {
  }
  EXPECT_GE(WorkLimit::processor_time() - begin, milliseconds(10));
  EXPECT_TRUE(limit.is_over());
}

TEST(WorkLimit, OfNoTimeIsOver) { EXPECT_TRUE(WorkLimit(Duration(0)).is_over()); }

}  // namespace
}  // namespace runnel
