#include "bench/tally.h"

#include <gmock/gmock.h>

#include <thread>

namespace runnel {
namespace {

using testing::HasSubstr;

TEST(TallyTest, GivesTheTimeToTheEndOfTheLastCall) {
  Tally tally({.calls = 2, .samples = 3, .values = 5});
  std::vector<int64_t> told;
  const std::jthread calls([&] {
    tally.add(10);
    tally.end({});
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    tally.add(20);
    tally.end({});
  });
  const Result<double> seconds = tally.wait([&](int64_t values) { told.push_back(values); });
  ASSERT_TRUE(seconds.ok());
  EXPECT_GE(*seconds, 0.25);
  EXPECT_FALSE(told.empty());
  for (const int64_t values : told) EXPECT_THAT(values, testing::AnyOf(0, 10, 30));
}

TEST(TallyTest, RefusesOtherValuesThanWereAskedFor) {
  Tally tally({.calls = 1, .samples = 1, .values = 5});
  tally.add(4);
  tally.end({});
  const Result<double> seconds = tally.wait({});
  EXPECT_EQ(seconds.status().code(), Code::kInternal);
  EXPECT_THAT(seconds.status().message(), HasSubstr("asked for 5 values and got 4"));
}

TEST(TallyTest, TellsTheFirstFailureOnceAllHaveEnded) {
  Tally tally({.calls = 3, .samples = 1, .values = 1});
  tally.end(Status(Code::kResourceExhausted, "full"));
  tally.end(Status(Code::kAborted, "late"));
  tally.end({});
  EXPECT_EQ(tally.wait({}).status(), Status(Code::kResourceExhausted, "full"));
}

}  // namespace
}  // namespace runnel
