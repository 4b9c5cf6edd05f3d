#include "engine/feed_pace.h"

#include <gtest/gtest.h>

namespace runnel {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A machine on which a step takes `base` plus `value` for each prompt value.
struct Machine {
  Duration base = milliseconds(1);
  Duration value = microseconds(70);

  Duration time(int64_t fed) const { return base + fed * value; }
  // Takes steps of up to `prompt` values, as `pace` allows. Returns the longest time.
  Duration longest(FeedPace& pace, int64_t decoding, int64_t steps, int64_t prompt = 512) const {
    Duration longest{};
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t fed = std::min(pace.most(decoding), prompt);
      pace.note(decoding, fed, time(fed));
      longest = std::max(longest, time(fed));
    }
    return longest;
  }
};

TEST(FeedPace, PromptsWithoutDecodingRowsHaveNoBound) {
  FeedPace pace(4, 1);
  pace.note(0, 512, milliseconds(36));
  EXPECT_EQ(pace.most(0), FeedPace::kNoBound);
}

TEST(FeedPace, WithoutASlowdownThereIsNoBound) {
  FeedPace pace(0, 1);
  pace.note(1, 0, milliseconds(1));
  pace.note(1, 8, milliseconds(2));
  EXPECT_EQ(pace.most(1), FeedPace::kNoBound);
}

TEST(FeedPace, AStepTakesAtMostTheSlowdown) {
  for (const int64_t slowdown : {2, 4, 10}) {
    FeedPace pace(slowdown, 1);
    const Machine machine;
    EXPECT_LE(machine.longest(pace, 3, 1000), slowdown * machine.base);
    // The pace uses most of the allowed slowdown.
    EXPECT_GE(machine.time(pace.most(3)), slowdown * machine.base - 2 * machine.value);
  }
}

TEST(FeedPace, AStepWithoutPromptsIsMeasuredPeriodically) {
  FeedPace pace(4, 1);
  const Machine slow{.base = milliseconds(4)};
  slow.longest(pace, 2, 100);
  const Machine fast;
  fast.longest(pace, 2, 300);
  EXPECT_LE(fast.time(pace.most(2)), 5 * fast.base);
  int without = 0;
  for (int i = 0; i < 650; ++i) {
    const int64_t fed = pace.most(2);
    pace.note(2, fed, fast.time(fed));
    without += fed == 0 ? 1 : 0;
  }
  EXPECT_EQ(without, 10);
}

TEST(FeedPace, EachNumberOfRowsIsMeasuredSeparately) {
  FeedPace pace(4, 1);
  Machine().longest(pace, 2, 10);
  EXPECT_GT(pace.most(3), 0);
  EXPECT_EQ(pace.most(4), 0);
  pace.note(4, 0, milliseconds(2));
  EXPECT_GT(pace.most(7), pace.most(2));
  EXPECT_GT(pace.most(2), 0);
}

// The rows of an account that keeps to its rate of values are not in every step.
TEST(FeedPace, PromptsAdvanceWhileTheNumberOfRowsChangesInEachStep) {
  FeedPace pace(4, 1);
  int without = 0;
  for (int i = 0; i < 660; ++i) {
    const int64_t decoding = i % 2 == 0 ? 1 : 11;
    const int64_t fed = pace.most(decoding);
    pace.note(decoding, fed, Machine().time(fed));
    without += fed == 0 ? 1 : 0;
  }
  EXPECT_LE(without, 22) << "two in 66 steps";
}

TEST(FeedPace, StepsThatTakeLongAreAtMostDoubled) {
  FeedPace pace(10, 1);
  const Machine large{.base = milliseconds(30), .value = milliseconds(1)};
  EXPECT_LE(large.longest(pace, 1, 100), milliseconds(60));
  EXPECT_EQ(pace.most(1), 30);
}

TEST(FeedPace, AModelThatTakesChunksGetsOne) {
  FeedPace pace(2, 64);
  Machine().longest(pace, 1, 100);
  EXPECT_EQ(pace.most(1), 64);
}

// A clock that a test has stopped measures no time.
TEST(FeedPace, StepsThatTakeNoTimeHaveNoBound) {
  FeedPace pace(4, 1);
  pace.note(1, 0, Duration(0));
  pace.note(1, 8, Duration(0));
  EXPECT_EQ(pace.most(1), FeedPace::kNoBound);
}

}  // namespace
}  // namespace runnel
