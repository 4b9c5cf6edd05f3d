#include "engine/slot_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/harness.h"

namespace runnel {
namespace {

using testing::ElementsAre;

// A queue of calls. The field `bytes` holds a call's name.
class SlotQueueTest : public testing::Test {
 protected:
  bool add(const std::string& account, int64_t name, int slots = 1) {
    QueuedCall call;
    call.account = account;
    call.slots = slots;
    call.bytes = name;
    return queue_.add(std::move(call));
  }
  // The name of the call that may run with this many free slots; 0 if none may.
  int64_t next(int free = 1) {
    QueuedCall* const call = queue_.next(
        now_, free, [this](const QueuedCall& waiting) { return waiting.account != barred_; });
    return call == nullptr ? 0 : queue_.take(*call).bytes;
  }
  std::vector<int64_t> all(int free = 1) {
    std::vector<int64_t> names;
    while (const int64_t name = next(free)) names.push_back(name);
    return names;
  }

  TimePoint now_{kSecond};
  SlotQueue queue_{16, 1000};
  std::string barred_ = "nobody";
};

TEST_F(SlotQueueTest, CallersTakeTurnsAndTheirCallsKeepTheirOrder) {
  for (const int name : {11, 12, 13}) EXPECT_TRUE(add("a", name));
  for (const int name : {21, 22}) EXPECT_TRUE(add("b", name));
  EXPECT_TRUE(add("c", 31));
  EXPECT_THAT(all(), ElementsAre(11, 21, 31, 12, 22, 13));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(SlotQueueTest, ACallerWhoJoinsComesLastInTheRound) {
  for (const int name : {11, 12, 13}) EXPECT_TRUE(add("a", name));
  for (const int name : {21, 22}) EXPECT_TRUE(add("b", name));
  EXPECT_EQ(next(), 11);
  EXPECT_TRUE(add("c", 31));
  EXPECT_THAT(all(), ElementsAre(21, 12, 31, 22, 13));
}

TEST_F(SlotQueueTest, ACallThatIsPutBackHasItsPlaceAgain) {
  const auto take_and_restore = [this] {
    QueuedCall call = queue_.take(*queue_.next(now_, 1, [](auto&) { return true; }));
    const int64_t name = call.bytes;
    queue_.restore(std::move(call));
    return name;
  };
  EXPECT_TRUE(add("a", 11));
  EXPECT_EQ(take_and_restore(), 11);
  EXPECT_EQ(queue_.size(), 1);
  EXPECT_TRUE(add("b", 21));
  EXPECT_TRUE(add("a", 12));
  EXPECT_EQ(take_and_restore(), 11);
  EXPECT_EQ(take_and_restore(), 11) << "its account still has its turn";
  EXPECT_THAT(all(), ElementsAre(11, 21, 12));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(SlotQueueTest, KeepsToItsLimitOfCalls) {
  for (int i = 1; i <= 16; ++i) EXPECT_TRUE(add("a", i));
  EXPECT_FALSE(add("b", 17));
  EXPECT_EQ(next(), 1);
  EXPECT_TRUE(add("b", 17));
}

TEST_F(SlotQueueTest, KeepsToItsLimitOfBytesExceptForASingleCall) {
  EXPECT_TRUE(add("a", 2000));
  EXPECT_FALSE(add("a", 1));
  EXPECT_EQ(next(), 2000);
  EXPECT_TRUE(add("a", 600));
  EXPECT_FALSE(add("a", 401));
  EXPECT_TRUE(add("a", 400));
}

TEST_F(SlotQueueTest, FreeSlotsAreReservedForTheCallThatHasItsTurn) {
  add("a", 11, 4);
  add("b", 21);
  EXPECT_EQ(next(0), 0);
  for (const int free : {1, 2, 3}) {
    EXPECT_EQ(next(free), 0);
    EXPECT_TRUE(queue_.keeps());
  }
  EXPECT_EQ(next(4), 11);
  EXPECT_EQ(next(1), 21);
  EXPECT_EQ(next(1), 0);
  EXPECT_FALSE(queue_.keeps());
}

TEST_F(SlotQueueTest, ACallReservesSlotsForASecondEachBeforeOthersGetTheirTurns) {
  add("a", 11, 4);
  add("a", 12);
  add("b", 21);
  now_ += 100 * kSecond;  // no slot is free, so none is reserved
  EXPECT_EQ(next(0), 0);
  EXPECT_EQ(next(3), 0);
  now_ += 4 * kSecond - Duration(1);
  EXPECT_EQ(next(3), 0);
  now_ += Duration(1);
  EXPECT_THAT(all(3), ElementsAre(21, 12));
  EXPECT_FALSE(queue_.keeps());
  EXPECT_EQ(next(4), 11);
}

TEST_F(SlotQueueTest, ASingleCallReservesSlotsHalfOfTheTime) {
  add("a", 11, 4);
  for (int i = 0; i < 24; ++i, now_ += kSecond) {
    EXPECT_EQ(next(3), 0);
    EXPECT_EQ(queue_.keeps(), i / 4 % 2 == 0) << i;
  }
  EXPECT_EQ(next(4), 11);
}

TEST_F(SlotQueueTest, CallsThatTakeTurnsInReservingLeaveSlotsToOthers) {
  add("a", 11, 4);
  add("b", 21, 4);
  for (int i = 0; i < 24; ++i, now_ += kSecond) {
    EXPECT_EQ(next(3), 0);
    EXPECT_EQ(queue_.keeps(), i / 4 % 2 == 0) << i;
  }
}

TEST_F(SlotQueueTest, ACallForOneSlotComesFirstWhileNoSlotsAreReserved) {
  add("a", 11, 4);
  EXPECT_EQ(next(3), 0);
  now_ += 4 * kSecond;
  EXPECT_EQ(next(3), 0);
  EXPECT_FALSE(queue_.keeps());
  add("b", 21);
  EXPECT_EQ(next(0), 0);
  EXPECT_TRUE(queue_.keeps());
  EXPECT_EQ(next(1), 21);
}

TEST_F(SlotQueueTest, ReservesASlotForACallThatIsNotTakenYet) {
  add("a", 11);
  add("b", 21);
  const auto any = [](const QueuedCall&) { return true; };
  queue_.take(*queue_.next(now_, 2, any));
  EXPECT_NE(queue_.next(now_, 1, any), nullptr);
  EXPECT_TRUE(queue_.keeps());
}

TEST_F(SlotQueueTest, AnEmptyQueueReservesNothing) {
  add("a", 11, 4);
  EXPECT_EQ(next(1), 0);
  queue_.remove_if([](QueuedCall&) { return true; });
  add("b", 21);
  EXPECT_FALSE(queue_.keeps());
  EXPECT_EQ(next(1), 21);
  add("b", 22);
  EXPECT_FALSE(queue_.keeps());
}

TEST_F(SlotQueueTest, ABarredCallIsPassedOverAndMissesNothing) {
  add("a", 11);
  add("a", 12);
  add("b", 21);
  add("c", 31);
  barred_ = "a";
  EXPECT_EQ(next(), 21);
  barred_ = "nobody";
  EXPECT_THAT(all(), ElementsAre(11, 31, 12));
  add("a", 13);
  barred_ = "a";
  EXPECT_EQ(next(), 0);
  EXPECT_FALSE(queue_.keeps()) << "free slots are for others";
}

TEST_F(SlotQueueTest, ACallerWhoLeavesIsForgotten) {
  add("a", 11);
  add("a", 12);
  add("b", 900);
  queue_.remove_if([](QueuedCall& call) { return call.bytes == 11 || call.bytes == 900; });
  EXPECT_EQ(queue_.size(), 1);
  EXPECT_TRUE(add("b", 901));
  EXPECT_THAT(all(), ElementsAre(12, 901));
}

// If no call comes or leaves, the places that clients are told come true.
TEST_F(SlotQueueTest, CallsAreServedInTheReportedOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    for (int64_t name = 1; name <= 12; ++name) {
      add(std::string(1, static_cast<char>('a' + random() % 4)), round * 100 + name);
      if (random() % 3 == 0) next();
    }
    std::vector<int64_t> told;
    for (const QueuedCall* call : queue_.in_order()) told.push_back(call->bytes);
    EXPECT_EQ(all(), told);
  }
}

TEST(SlotRate, CountsOnlyTheTimeInWhichCallsWait) {
  SlotRate rate;
  TimePoint now(kSecond);
  rate.note(now, 5, false);
  EXPECT_EQ(rate.time_for(1), std::nullopt);
  rate.note(now += 100 * kSecond, 50, true);  // nobody has waited so far
  EXPECT_EQ(rate.time_for(1), std::nullopt);
  rate.note(now += kSecond, 54, true);
  EXPECT_EQ(rate.time_for(2), kSecond / 2);
  EXPECT_EQ(rate.time_for(-1), Duration(0));
  rate.note(now += kSecond, 58, false);
  rate.note(now += 100 * kSecond, 60, true);
  const Duration same = *rate.time_for(4);
  EXPECT_NEAR(std::chrono::duration<double>(same).count(), 1.0, 1e-9);
}

TEST(SlotRate, FollowsRecentReleasesAndForgetsOldOnes) {
  SlotRate rate;
  TimePoint now(kSecond);
  rate.note(now, 0, true);
  int64_t freed = 0;
  for (int i = 0; i < 60; ++i) rate.note(now += kSecond, freed += 10, true);
  for (int i = 0; i < 60; ++i) rate.note(now += kSecond, ++freed, true);
  EXPECT_NEAR(std::chrono::duration<double>(*rate.time_for(3)).count(), 3.0, 0.1);
  for (int i = 0; i < 60; ++i) rate.note(now += kSecond, freed, true);
  EXPECT_EQ(rate.time_for(3), std::nullopt);
}

}  // namespace
}  // namespace runnel
