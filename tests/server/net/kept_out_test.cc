#include "server/net/kept_out.h"

#include <gtest/gtest.h>

namespace runnel {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(KeptOut, AnAddressIsKeptOutForFiveSeconds) {
  KeptOut out;
  EXPECT_FALSE(out.has("192.0.2.7", kStart));
  out.add("192.0.2.7", kStart);
  EXPECT_TRUE(out.has("192.0.2.7", kStart + seconds(5) - Duration(1)));
  EXPECT_FALSE(out.has("192.0.2.7", kStart + seconds(5)));
  EXPECT_FALSE(out.has("192.0.2.8", kStart));
}

TEST(KeptOut, EachRepetitionDoublesTheTimeUpToEightySeconds) {
  KeptOut out;
  TimePoint now = kStart;
  for (const int length : {5, 10, 20, 40, 80, 80}) {
    out.add("unix", now);
    out.add("unix", now + seconds(1));  // still the same flood
    EXPECT_TRUE(out.has("unix", now + seconds(length) - Duration(1)));
    now += seconds(length);
    EXPECT_FALSE(out.has("unix", now));
  }
  now += minutes(10) + seconds(1);
  out.add("another", now);
  out.add("unix", now);
  EXPECT_FALSE(out.has("unix", now + seconds(5))) << "it has been forgotten";
}

TEST(KeptOut, RemembersABoundedNumberOfAddresses) {
  KeptOut out;
  for (int i = 0; i < 5000; ++i) out.add(std::to_string(i), kStart + Duration(i));
  EXPECT_FALSE(out.has("0", kStart + seconds(1)));
  EXPECT_TRUE(out.has("4999", kStart + seconds(1)));
  int kept = 0;
  for (int i = 0; i < 5000; ++i) kept += out.has(std::to_string(i), kStart + seconds(1)) ? 1 : 0;
  EXPECT_EQ(kept, 4096);
}

}  // namespace
}  // namespace runnel
