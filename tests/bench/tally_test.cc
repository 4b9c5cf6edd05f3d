#include "bench/tally.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

namespace runnel {
namespace {

using testing::HasSubstr;

double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

TEST(TallyTest, MeasuresTheTimeUntilTheLastCallEnds) {
  const Clock clock;
  const TimePoint before = clock.now();
  Tally tally({.calls = 2, .samples = 3, .values = 5});
  const TimePoint made = clock.now();
  TimePoint last_call;
  std::vector<int64_t> told;
  std::atomic<bool> has_told = false;
  std::thread calls([&] {
    tally.add(10);
    tally.end({});
    has_told.wait(false);
    last_call = clock.now();
    tally.add(20);
    tally.end({});
  });
  const Result<double> seconds = tally.wait([&](int64_t values) {
    told.push_back(values);
    has_told = true;
    has_told.notify_one();
  });
  calls.join();
  const TimePoint after = clock.now();
  ASSERT_TRUE(seconds.ok());
  EXPECT_GE(*seconds, seconds_between(made, last_call));
  EXPECT_LE(*seconds, seconds_between(before, after));
  EXPECT_FALSE(told.empty());
  for (const int64_t values : told) EXPECT_THAT(values, testing::AnyOf(0, 10, 30));
}

TEST(TallyTest, RefusesAnotherNumberOfValuesThanWasAskedFor) {
  Tally tally({.calls = 1, .samples = 1, .values = 5});
  tally.add(4);
  tally.end({});
  const Result<double> seconds = tally.wait({});
  EXPECT_EQ(seconds.status().code(), Code::kInternal);
  EXPECT_THAT(seconds.status().message(), HasSubstr("asked for 5 values and got 4"));
}

TEST(TallyTest, ReportsTheFirstFailureAfterAllCallsHaveEnded) {
  Tally tally({.calls = 3, .samples = 1, .values = 1});
  tally.end(Status(Code::kResourceExhausted, "full"));
  tally.end(Status(Code::kAborted, "late"));
  tally.end({});
  EXPECT_EQ(tally.wait({}).status(), Status(Code::kResourceExhausted, "full"));
}

}  // namespace
}  // namespace runnel
