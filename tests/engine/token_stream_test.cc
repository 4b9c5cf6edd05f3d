#include "engine/token_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/base/eventually.h"

namespace runnel {
namespace {

constexpr TimePoint kStart{std::chrono::seconds(1)};
constexpr Duration kMillisecond = std::chrono::milliseconds(1);

Emitted value_of(int32_t value, int64_t position) {
  return {.row = 0, .value = value, .position = position, .top = {}};
}

class TokenStreamTest : public testing::Test {
 protected:
  TokenStream stream_{
      {.max_values = 3, .max_delay = 20 * kMillisecond}, 8, 2, [this] { ++wakes_; }};
  StreamGroup group_;
  int wakes_ = 0;
};

TEST_F(TokenStreamTest, TheFirstValueIsDeliveredAtOnce) {
  stream_.push(0, value_of(5, 0), kStart);
  EXPECT_EQ(wakes_, 1);
  ASSERT_TRUE(stream_.take(group_));
  ASSERT_EQ(group_.values.size(), 1U);
  EXPECT_EQ(group_.values[0].value, 5);
}

TEST_F(TokenStreamTest, LaterValuesWaitForAFullGroupOrTheDelay) {
  stream_.push(0, value_of(0, 0), kStart);
  ASSERT_TRUE(stream_.take(group_));
  EXPECT_FALSE(stream_.take(group_));
  stream_.push(0, value_of(1, 1), kStart);
  stream_.push(0, value_of(2, 2), kStart);
  EXPECT_EQ(wakes_, 1);
  EXPECT_FALSE(stream_.take(group_));
  stream_.push(0, value_of(3, 3), kStart);
  EXPECT_EQ(wakes_, 2);
  ASSERT_TRUE(stream_.take(group_));
  EXPECT_EQ(group_.values.size(), 3U);

  EXPECT_FALSE(stream_.take(group_));
  stream_.push(0, value_of(4, 4), kStart);
  stream_.flush(kStart + 19 * kMillisecond);
  EXPECT_FALSE(stream_.take(group_));
  stream_.flush(kStart + 20 * kMillisecond);
  EXPECT_EQ(wakes_, 3);
  ASSERT_TRUE(stream_.take(group_));
  EXPECT_EQ(group_.values.size(), 1U);
}

TEST_F(TokenStreamTest, AFinishDeliversTheRemainingValues) {
  stream_.push(0, value_of(0, 0), kStart);
  ASSERT_TRUE(stream_.take(group_));
  stream_.push(0, value_of(1, 1), kStart);
  stream_.finish({.sample = 0, .reason = FinishReason::kLength});
  stream_.end({});
  ASSERT_TRUE(stream_.take(group_));
  EXPECT_EQ(group_.values.size(), 1U);
  EXPECT_EQ(group_.finished.size(), 1U);
  ASSERT_TRUE(group_.end.has_value());
  EXPECT_TRUE(group_.end->ok());
  EXPECT_FALSE(stream_.take(group_));
}

TEST_F(TokenStreamTest, OnlyTheFirstEndCounts) {
  stream_.end({Code::kAborted, "first"});
  stream_.end({});
  ASSERT_TRUE(stream_.take(group_));
  EXPECT_EQ(group_.end->message(), "first");
  stream_.end({});
  EXPECT_FALSE(stream_.take(group_));
}

TEST_F(TokenStreamTest, RoomShrinksAndIsFreedByTheReader) {
  for (int i = 0; i < 8; ++i) stream_.push(0, value_of(i, i), kStart);
  EXPECT_EQ(stream_.room(), 0);
  int resumed = 0;
  stream_.attach([&] { ++resumed; });
  ASSERT_TRUE(stream_.take(group_));
  EXPECT_EQ(stream_.room(), 8);
  EXPECT_EQ(resumed, 0);  // the scheduler did not wait
  for (int i = 0; i < 8; ++i) stream_.push(0, value_of(i, i), kStart);
  stream_.starve();
  ASSERT_TRUE(stream_.take(group_));
  EXPECT_EQ(resumed, 1);
}

TEST_F(TokenStreamTest, LackOfRoomDeliversAPartialGroup) {
  stream_.push(0, value_of(0, 0), kStart);
  ASSERT_TRUE(stream_.take(group_));
  stream_.push(0, value_of(1, 1), kStart);
  EXPECT_FALSE(stream_.take(group_));
  stream_.starve();  // several samples need more room than is left
  EXPECT_EQ(wakes_, 2);
  ASSERT_TRUE(stream_.take(group_));
  EXPECT_EQ(group_.values.size(), 1U);
}

TEST_F(TokenStreamTest, TheSchedulerIsToldAtOnceIfThereIsRoomAgain) {
  int resumed = 0;
  stream_.attach([&] { ++resumed; });
  for (int i = 0; i < 8; ++i) stream_.push(0, value_of(i, i), kStart);
  ASSERT_TRUE(stream_.take(group_));  // after the scheduler has seen that the stream is full
  stream_.starve();
  EXPECT_EQ(resumed, 1);
  stream_.push(0, value_of(8, 8), kStart);
  EXPECT_FALSE(stream_.take(group_)) << "nothing is in haste";
}

TEST_F(TokenStreamTest, TopLogProbsAreDeliveredWithTheirValues) {
  Emitted emitted = value_of(1, 0);
  const TopLogProb top[] = {{1, -0.5F}, {2, -1.5F}};
  emitted.top = top;
  stream_.push(0, emitted, kStart);
  stream_.push(0, emitted, kStart);
  ASSERT_TRUE(stream_.take(group_));
  ASSERT_EQ(group_.top.size(), 4U);
  EXPECT_EQ(group_.top[3].value, 2);
}

TEST_F(TokenStreamTest, CancelTellsTheScheduler) {
  int resumed = 0;
  stream_.attach([&] { ++resumed; });
  EXPECT_FALSE(stream_.cancelled());
  stream_.cancel();
  EXPECT_TRUE(stream_.cancelled());
  EXPECT_EQ(resumed, 1);
}

TEST_F(TokenStreamTest, TheSchedulerIsToldOfStoppedSamples) {
  int resumed = 0;
  stream_.attach([&] { ++resumed; });
  EXPECT_TRUE(stream_.take_stopped().empty());
  stream_.stop(2);
  stream_.stop(0);
  EXPECT_EQ(resumed, 2);
  EXPECT_EQ(stream_.take_stopped(), (std::vector<int>{2, 0}));
  EXPECT_TRUE(stream_.take_stopped().empty());
  EXPECT_FALSE(stream_.cancelled());
}

TEST_F(TokenStreamTest, AfterTheEndTheSchedulerIsNotCalled) {
  for (int i = 0; i < 8; ++i) stream_.push(0, value_of(i, i), kStart);
  int resumed = 0;
  stream_.attach([&] { ++resumed; });
  stream_.starve();
  stream_.end({});
  ASSERT_TRUE(stream_.take(group_));
  stream_.cancel();
  EXPECT_EQ(resumed, 0);
}

TEST_F(TokenStreamTest, PushingWithoutRoomStopsTheProcess) {
  for (int i = 0; i < 8; ++i) stream_.push(0, value_of(i, i), kStart);
  EXPECT_DEATH(stream_.push(0, value_of(8, 8), kStart), "room");
}

// A reader on its own thread, woken like a reactor, gets every value once and in order.
TEST(TokenStreamThreads, NothingIsLostBetweenWakeAndTake) {
  constexpr int kValues = 20000;
  std::mutex mutex;
  std::condition_variable wake;
  bool woken = false;
  TokenStream stream({.max_values = 7, .max_delay = Duration(0)}, 64, 0, [&] {
    std::lock_guard lock(mutex);
    woken = true;
    wake.notify_one();
  });
  std::vector<int32_t> received;
  std::atomic<int> taken{0};  // groups
  std::thread reader([&] {
    StreamGroup group;
    for (bool ended = false; !ended;) {
      while (stream.take(group)) {
        ++taken;
        taken.notify_one();
        for (const StreamValue& value : group.values) received.push_back(value.value);
        if (group.end) ended = true;
      }
      if (ended) return;
      std::unique_lock lock(mutex);
      ASSERT_TRUE(wake.wait_for(lock, kPatience, [&] { return woken; }));
      woken = false;
    }
  });
  for (int i = 0; i < kValues; ++i) {
    for (int seen = taken; stream.room() == 0; seen = taken) taken.wait(seen);
    stream.push(0, value_of(i, i), std::chrono::steady_clock::now());
  }
  stream.end({});
  reader.join();
  ASSERT_EQ(received.size(), static_cast<size_t>(kValues));
  for (int i = 0; i < kValues; ++i) EXPECT_EQ(received[i], i);
}

}  // namespace
}  // namespace runnel
