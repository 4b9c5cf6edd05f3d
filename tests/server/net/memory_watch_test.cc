#include "server/net/memory_watch.h"

#include <gtest/gtest.h>

#include "server/host/process_figures.h"

namespace runnel {
namespace {

TEST(MemoryWatch, CountsWhatIsResidentBeyondTheAllowance) {
  MemoryWatch watch;
  EXPECT_EQ(watch.excess(1, 1, 0), 0) << "nothing is allowed yet";
  const int64_t resident = process_figures().resident_bytes;
  watch.allow({.fixed = resident / 2, .per_connection = 1000, .per_call = 100});
  const int64_t excess = watch.excess(0, 0, 0);
  EXPECT_NEAR(static_cast<double>(excess), static_cast<double>(resident - resident / 2), 1 << 22);
  EXPECT_NEAR(static_cast<double>(watch.excess(3, 5, 7)), static_cast<double>(excess - 3507),
              1 << 20);
  watch.allow({});
  EXPECT_EQ(watch.excess(0, 0, 0), 0) << "nothing is allowed any more";
}

}  // namespace
}  // namespace runnel
