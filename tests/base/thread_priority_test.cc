#include "base/thread_priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace runnel {
namespace {

int own_nice() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

TEST(ThreadPriority, AffectsOnlyItsThread) {
  const int before = own_nice();
  int computing = 0;
  std::thread([&] {
    compute_behind_others();
    computing = own_nice();
  }).join();
  EXPECT_EQ(computing, std::max(before, 10));
  EXPECT_EQ(own_nice(), before);
}

}  // namespace
}  // namespace runnel
