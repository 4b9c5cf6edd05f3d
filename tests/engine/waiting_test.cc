// Calls that wait for slots, tested on Engine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/account_usage.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GenerateRequest waiting_request(std::vector<int32_t> prompt, int64_t values = 5,
                                Duration at_most = kSecond) {
  GenerateRequest request = request_of(std::move(prompt), values);
  request.max_queue_time = at_most;
  return request;
}

std::vector<int> places(const Reader& reader) {
  std::vector<int> places;
  for (const Queued& queued : reader.queued) places.push_back(queued.place);
  return places;
}

EngineOptions with_queue(int64_t calls, int64_t bytes = 1 << 20) {
  EngineOptions options;
  options.queue = calls;
  options.queue_bytes = bytes;
  return options;
}

// Two slots. Long calls hold both.
class WaitingTest : public testing::Test {
 protected:
  explicit WaitingTest(const EngineOptions& options = {})
      : harness_(fake_spec(0, true), {.slots = 2, .rows = 8, .values = 16, .steps = 1}, options) {
    for (auto& reader : running_) {
      reader = harness_.generate(request_of({1}, 1 << 18));
    }
    harness_.turn();
  }

  std::vector<int32_t> expected(const std::vector<int32_t>& known, int count) {
    return FakeModel::expected(harness_.model->spec(), known, 1, 0, count);
  }
  void end_one(int which) {
    running_[which]->stream->cancel();
    harness_.turn();
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) harness_.turn();
  }

  Harness harness_;
  std::shared_ptr<Reader> running_[2];
};

TEST_F(WaitingTest, AWaitingCallIsToldItsPlaceAndGetsTheSameValues) {
  GenerateRequest request = waiting_request({3, 1, 4});
  request.begin = true;
  const auto reader = harness_.generate(request);
  turns(3);
  EXPECT_THAT(places(*reader), ElementsAre(1));
  EXPECT_EQ(reader->queued[0].wait, std::nullopt) << "no slot has come free yet";
  EXPECT_FALSE(reader->started.has_value());
  EXPECT_EQ(harness_.engine->stats().waiting, 1);
  EXPECT_EQ(harness_.engine->active_calls(), 3);
  end_one(0);
  EXPECT_TRUE(reader->started.has_value()) << "within one step";
  turns(10);
  EXPECT_TRUE(reader->end->ok());
  EXPECT_EQ(reader->values[0], expected({7, 3, 1, 4}, 5));
  EXPECT_EQ(harness_.engine->stats().waiting, 0);
}

TEST_F(WaitingTest, ACallThatFindsASlotIsToldNoPlace) {
  end_one(0);
  const auto reader = harness_.generate(waiting_request({2}));
  turns(8);
  EXPECT_TRUE(reader->end->ok());
  EXPECT_TRUE(reader->queued.empty());
}

TEST_F(WaitingTest, TheSlotOfTheSessionThatACallStartsFromIsNotFreeForIt) {
  end_one(0);
  ASSERT_TRUE(harness_.create("a").ok());
  harness_.engine->mark_saved({"", "a"}, 0);
  GenerateRequest request = waiting_request({2});
  request.session = "a";
  request.keep = false;
  const auto reader = harness_.generate(request);
  turns(3);
  EXPECT_EQ(harness_.engine->stats().sessions_free, 1);
  EXPECT_THAT(places(*reader), ElementsAre(1));
  EXPECT_FALSE(reader->end.has_value());
  end_one(1);
  turns(8);
  EXPECT_TRUE(reader->end->ok());
  EXPECT_EQ(reader->values[0], expected({2}, 5));
  EXPECT_TRUE(harness_.get("a").ok());
}

TEST_F(WaitingTest, PlacesAreToldAgainWhenTheyChangeAtMostOnceASecond) {
  std::vector<std::shared_ptr<Reader>> readers;
  for (int i = 0; i < 4; ++i) {
    readers.push_back(harness_.generate(waiting_request({i}, 1, 10 * kSecond)));
  }
  harness_.turn();
  for (int i = 0; i < 4; ++i) EXPECT_THAT(places(*readers[i]), ElementsAre(i + 1));
  harness_.clock.advance(900 * kMs);
  end_one(0);
  turns(1);
  EXPECT_TRUE(readers[0]->started && readers[1]->started);
  EXPECT_EQ(readers[3]->queued.size(), 1U);
  running_[0] = harness_.generate(request_of({1}, 1 << 18));  // waiting calls come before it
  turns(5);
  EXPECT_FALSE(running_[0]->started.has_value());
  EXPECT_TRUE(readers[3]->end.has_value());
}

TEST_F(WaitingTest, TheExpectedWaitFollowsFromHowFastSlotsComeFree) {
  std::vector<std::shared_ptr<Reader>> readers;
  for (int i = 0; i < 6; ++i) {
    GenerateRequest request = waiting_request({i}, 1 << 18, 100 * kSecond);
    readers.push_back(harness_.generate(request));
  }
  harness_.turn();
  // One slot becomes free each second.
  std::vector<std::shared_ptr<Reader>> open = {running_[0], running_[1]};
  open.insert(open.end(), readers.begin(), readers.end());
  for (int second = 0; second < 3; ++second) {
    harness_.clock.advance(kSecond);
    open[second]->stream->cancel();
    turns(2);
  }
  const Queued last = readers[5]->queued.back();
  EXPECT_EQ(last.place, 3);
  ASSERT_TRUE(last.wait.has_value());
  EXPECT_NEAR(std::chrono::duration<double>(*last.wait).count(), 3.0, 0.1);
}

TEST_F(WaitingTest, ANewCallDoesNotOvertakeWaitingCalls) {
  GenerateRequest both = waiting_request({2}, 5);
  both.samples = 2;
  const auto waiting = harness_.generate(both);
  harness_.turn();
  end_one(0);
  // One slot is free, and reserved.
  EXPECT_FALSE(waiting->started.has_value());
  const auto hasty = harness_.generate(request_of({3}, 1));
  EXPECT_EQ(hasty->end->code(), Code::kResourceExhausted);
  EXPECT_THAT(hasty->end->message(), HasSubstr("free sessions go first to 1 waiting call;"));
  EXPECT_TRUE(hasty->end->retry_after().has_value());
  EXPECT_EQ(harness_.create("s").status().code(), Code::kResourceExhausted);
  GenerateRequest named = request_of({3}, 1);
  named.request_id = "r";
  const auto refused = harness_.generate(named);
  harness_.turn();
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  const auto second = harness_.generate(waiting_request({4}, 1));
  harness_.turn();
  EXPECT_THAT(places(*second), ElementsAre(2));
  end_one(1);
  turns(12);
  EXPECT_TRUE(waiting->end->ok());
  EXPECT_TRUE(second->end->ok());
  EXPECT_TRUE(harness_.create("s").ok());
}

// A call that needs every slot gets them while calls that need one slot keep coming, and such calls
// get theirs while calls that need every slot keep coming.
TEST_F(WaitingTest, NeitherLargeNorSmallCallsStarve) {
  for (const auto& reader : running_) reader->stream->cancel();
  harness_.turn();
  std::vector<std::shared_ptr<Reader>> large, small;
  for (int i = 0; i < 200; ++i) {
    GenerateRequest request = waiting_request({i % 100}, 3, 100 * kSecond);
    request.caller.account = "small";
    small.push_back(harness_.generate(request));
    if (i % 4 == 0) {
      request.caller.account = "large";
      request.samples = 2;
      large.push_back(harness_.generate(request));
    }
    turns(1);
    harness_.clock.advance(10 * kMs);
  }
  const auto ended = [](const auto& reader) { return reader->end && reader->end->ok(); };
  EXPECT_GT(std::ranges::count_if(large, ended), 10);
  EXPECT_GT(std::ranges::count_if(small, ended), 10);
  harness_.run();
  EXPECT_TRUE(std::ranges::all_of(large, ended));
  EXPECT_TRUE(std::ranges::all_of(small, ended));
}

TEST_F(WaitingTest, ACancelledCallLeavesTheQueueAtOnce) {
  const auto first = harness_.generate(waiting_request({2}));
  const auto second = harness_.generate(waiting_request({3}));
  harness_.turn();
  first->stream->cancel();
  harness_.turn();
  EXPECT_EQ(first->end->code(), Code::kCancelled);
  EXPECT_EQ(harness_.engine->stats().waiting, 1);
  end_one(0);
  EXPECT_TRUE(second->started.has_value());
}

TEST_F(WaitingTest, ATimeoutHasTheStatusOfACallThatDoesNotWait) {
  const auto reader = harness_.generate(waiting_request({2}, 5, 100 * kMs));
  harness_.turn();
  harness_.clock.advance(99 * kMs);
  harness_.turn();
  EXPECT_FALSE(reader->end.has_value());
  harness_.clock.advance(kMs);
  harness_.turn();
  EXPECT_EQ(reader->end->code(), Code::kResourceExhausted);
  EXPECT_THAT(reader->end->message(), HasSubstr("0 of 2 sessions are free"));
  EXPECT_EQ(reader->end->retry_after(), std::chrono::seconds(1));
}

// A slot that becomes free in the turn of the timeout still goes to the call.
TEST_F(WaitingTest, ASlotFreedInTheTurnOfTheTimeoutIsUsed) {
  const auto reader = harness_.generate(waiting_request({2}, 5, 100 * kMs));
  harness_.turn();
  harness_.clock.advance(100 * kMs);
  end_one(0);
  EXPECT_TRUE(reader->started.has_value());
}

TEST_F(WaitingTest, MaxTimeCountsFromTheStart) {
  GenerateRequest request = waiting_request({2}, 1 << 18, 10 * kSecond);
  request.max_time = 50 * kMs;
  const auto reader = harness_.generate(request);
  harness_.turn();
  harness_.clock.advance(kSecond);
  end_one(0);
  turns(3);
  EXPECT_FALSE(reader->end.has_value());
  harness_.clock.advance(50 * kMs);
  turns(2);
  ASSERT_TRUE(reader->end.has_value());
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kTime);
  EXPECT_EQ(reader->finished[0].elapsed, 50 * kMs);
  EXPECT_EQ(reader->finished[0].first_value, Duration(0)) << "the clock moved after it";
}

TEST_F(WaitingTest, ADrainRefusesWaitingCallsAtOnce) {
  const auto reader = harness_.generate(waiting_request({2}));
  const auto score = harness_.engine->start_score({}, {}, false, false, kSecond);
  std::optional<Status> scored;
  ASSERT_TRUE(
      harness_.engine->score(*score, {1, 2}, [&](const auto& r) { scored = r.status(); }).ok());
  harness_.turn();
  EXPECT_EQ(harness_.engine->stats().waiting, 2);
  harness_.engine->drain();
  harness_.turn();
  EXPECT_EQ(reader->end->code(), Code::kUnavailable);
  EXPECT_EQ(scored->code(), Code::kUnavailable);
  EXPECT_EQ(harness_.engine->active_calls(), 2);
}

TEST_F(WaitingTest, AnEndOfAllCallsEndsWaitingCalls) {
  const auto reader = harness_.generate(waiting_request({2}));
  harness_.turn();
  harness_.engine->end_all({Code::kUnavailable, "enough"});
  harness_.turn();
  EXPECT_EQ(reader->end->message(), "enough");
  EXPECT_EQ(harness_.engine->active_calls(), 0);
}

TEST_F(WaitingTest, ADeviceFailureEndsWaitingCalls) {
  const auto reader = harness_.generate(waiting_request({2}));
  harness_.turn();
  harness_.model->fails = [] { return true; };
  harness_.turn();
  EXPECT_EQ(reader->end->code(), Code::kUnavailable);
  EXPECT_EQ(harness_.engine->active_calls(), 0);
}

TEST(Waiting, ASessionThatEndsMakesRoomWithinOneStep) {
  EngineOptions options;
  options.idle_timeout = 60 * kSecond;
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 4, .steps = 1}, options);
  ASSERT_TRUE(harness.create("a").ok());
  ASSERT_TRUE(harness.create("b").ok());
  const auto first = harness.generate(waiting_request({1}, 1000, 1000 * kSecond));
  const auto second = harness.generate(waiting_request({2}, 1000, 1000 * kSecond));
  harness.turn();
  ASSERT_TRUE(harness.remove("a").ok());
  EXPECT_EQ(harness.engine->stats().waiting, 1);
  harness.clock.advance(61 * kSecond);
  harness.turn();
  EXPECT_TRUE(first->started.has_value());
  EXPECT_TRUE(second->started.has_value());
}

// When a waiting call gets its turn, the session that it starts from is looked up again.
TEST(Waiting, ASessionDeletedDuringTheWaitIsNotFound) {
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 4, .steps = 1});
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest feed = request_of({5, 6}, 1);
  feed.session = "a";
  harness.generate(feed);
  harness.run();
  const auto running = harness.generate(request_of({1}, 1 << 18));
  GenerateRequest from = waiting_request({9}, 3);
  from.session = "a";
  from.keep = false;
  const auto reader = harness.generate(from);
  const auto other = harness.generate(from);
  harness.turn();
  EXPECT_EQ(harness.engine->stats().waiting, 2);
  running->stream->cancel();
  for (int i = 0; i < 2; ++i) harness.turn();
  EXPECT_EQ(reader->started->position, 3);
  ASSERT_TRUE(harness.remove("a").ok());
  harness.run();
  EXPECT_TRUE(reader->end->ok());
  EXPECT_EQ(other->end->code(), Code::kNotFound);
  from.session = "none";
  const auto none = harness.generate(from);
  harness.turn();
  EXPECT_EQ(none->end->code(), Code::kNotFound);
}

TEST_F(WaitingTest, ARetryTakesOverThePlaceInTheQueue) {
  GenerateRequest request = waiting_request({2}, 5, 100 * kMs);
  request.keep = true;
  request.request_id = "again";
  const auto first = harness_.generate(request);
  const auto behind = harness_.generate(waiting_request({3}));
  harness_.turn();
  harness_.clock.advance(90 * kMs);
  request.max_queue_time = kSecond;  // another wait time does not make it another request
  const auto second = harness_.generate(request);
  harness_.turn();
  EXPECT_EQ(first->end->code(), Code::kAborted);
  EXPECT_THAT(first->end->message(), HasSubstr("made again"));
  EXPECT_THAT(places(*second), ElementsAre(1));
  harness_.clock.advance(90 * kMs);
  harness_.turn();
  EXPECT_FALSE(second->end.has_value()) << "its time begins again";
  GenerateRequest changed = request;
  changed.prompt = {4};
  const auto refused = harness_.generate(changed);
  harness_.turn();
  EXPECT_EQ(refused->end->code(), Code::kInvalidArgument);
  end_one(0);
  EXPECT_TRUE(second->started.has_value());
  EXPECT_FALSE(behind->started.has_value());
  turns(8);
  EXPECT_EQ(second->values[0], expected({2}, 5));
  // Now the call has run, and its results are sent again.
  const auto third = harness_.generate(request);
  turns(8);
  EXPECT_EQ(third->values[0], second->values[0]);
  EXPECT_TRUE(third->queued.empty());
}

TEST_F(WaitingTest, AScoreCallWaitsWithItsFirstMessage) {
  const auto call = harness_.engine->start_score({}, {}, true, false, kSecond);
  std::optional<Result<ScoredChunk>> scored;
  const auto give = [&](std::vector<int32_t> values) {
    scored.reset();
    ASSERT_TRUE(
        harness_.engine
            ->score(*call, std::move(values), [&](Result<ScoredChunk> r) { scored = std::move(r); })
            .ok());
  };
  give({2, 3, 4});
  turns(3);
  EXPECT_FALSE(scored.has_value());
  end_one(0);
  turns(3);
  ASSERT_TRUE(scored && scored->ok());
  EXPECT_EQ((*scored)->position, 1);
  const std::vector<int32_t> known = {7, 2, 3, 4, 5};
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ((*scored)->log_probs[i - 1], FakeModel::expected_log_prob(known, i));
  }
  give({5});
  turns(3);
  EXPECT_EQ((*scored)->log_probs.at(0), FakeModel::expected_log_prob(known, 4));
}

TEST_F(WaitingTest, AScoreCallIsAcceptedOnceItHasASlotOrWaitsForOne) {
  std::vector<int> accepted;
  const auto ask = [&](int number, Duration at_most) {
    const auto call = harness_.engine->start_score({}, {}, false, false, at_most, 0,
                                                   [&, number] { accepted.push_back(number); });
    ASSERT_TRUE(harness_.engine->score(*call, {1, 2}, [](const auto& /*scores*/) {}).ok());
    harness_.turn();
  };
  ask(1, kSecond);
  EXPECT_THAT(accepted, ElementsAre(1));
  ask(2, Duration(0));
  EXPECT_THAT(accepted, ElementsAre(1)) << "it is refused";
  end_one(0);
  turns(3);
  EXPECT_THAT(accepted, ElementsAre(1)) << "only once";
  end_one(1);
  ask(3, Duration(0));
  EXPECT_THAT(accepted, ElementsAre(1, 3));
}

TEST_F(WaitingTest, AScoreCallThatKeepsItsValuesNeedsNoSlotAndDoesNotWait) {
  end_one(0);
  ASSERT_TRUE(harness_.create("a").ok());
  const auto reader = harness_.generate(waiting_request({2}));
  const auto call =
      harness_.engine->start_score({}, {.session = "a", .state = {}}, false, true, kSecond);
  std::optional<Status> scored;
  ASSERT_TRUE(
      harness_.engine->score(*call, {1, 2}, [&](const auto& r) { scored = r.status(); }).ok());
  turns(3);
  EXPECT_THAT(places(*reader), ElementsAre(1));
  EXPECT_TRUE(scored && scored->ok());
  EXPECT_EQ(harness_.engine->stats().waiting, 1);
}

TEST_F(WaitingTest, AWaitingScoreCallCanBeCancelledOrTimeOut) {
  for (const bool cancels : {false, true}) {
    const auto call = harness_.engine->start_score({}, {}, false, false, kSecond);
    std::optional<Status> status;
    int answers = 0;
    ASSERT_TRUE(harness_.engine
                    ->score(*call, {1, 2},
                            [&](const Result<ScoredChunk>& r) {
                              status = r.status();
                              ++answers;
                            })
                    .ok());
    harness_.turn();
    EXPECT_FALSE(status.has_value());
    if (cancels) harness_.engine->end_score(*call);
    if (!cancels) harness_.clock.advance(kSecond);
    turns(3);
    EXPECT_EQ(status->code(), cancels ? Code::kCancelled : Code::kResourceExhausted);
    EXPECT_EQ(answers, 1);
    EXPECT_EQ(harness_.engine->stats().waiting, 0);
  }
}

class ShortQueue : public WaitingTest {
 protected:
  ShortQueue() : WaitingTest(with_queue(2)) {}
};

TEST_F(ShortQueue, AFullQueueRefuses) {
  for (int i = 0; i < 2; ++i) harness_.generate(waiting_request({2}));
  const auto third = harness_.generate(waiting_request({2}));
  harness_.turn();
  EXPECT_EQ(third->end->code(), Code::kResourceExhausted);
  EXPECT_THAT(third->end->message(), HasSubstr("limits.queue"));
  EXPECT_TRUE(third->end->retry_after().has_value());
}

class NarrowQueue : public WaitingTest {
 protected:
  NarrowQueue() : WaitingTest(with_queue(16, 1000)) {}
};

TEST_F(NarrowQueue, CountsTheBytesThatACallHoldsForItsAnswers) {
  GenerateRequest request = waiting_request({2});
  request.held_bytes = 490;
  for (int i = 0; i < 2; ++i) harness_.generate(request);
  const auto third = harness_.generate(request);
  harness_.turn();
  EXPECT_EQ(harness_.engine->stats().waiting, 2);
  EXPECT_THAT(third->end->message(), HasSubstr("limits.queue_bytes"));
}

TEST_F(WaitingTest, AnImpossibleCallIsRefusedAtOnceWhileSlotsAreReserved) {
  harness_.generate(waiting_request({2}));
  harness_.turn();
  GenerateRequest request = waiting_request({2});
  request.samples = 3;
  const auto reader = harness_.generate(request);
  harness_.turn();
  EXPECT_EQ(reader->end->code(), Code::kInvalidArgument);
}

TEST_F(WaitingTest, AnImpossibleCallIsRefusedAtOnce) {
  GenerateRequest request = waiting_request({2});
  request.samples = 3;
  EXPECT_EQ(harness_.generate(request)->end->code(), Code::kInvalidArgument);
  request = waiting_request({2}, 1, Duration(-1));
  EXPECT_EQ(harness_.generate(request)->end->code(), Code::kInvalidArgument);
  request.max_queue_time = std::chrono::hours(1) + Duration(1);
  EXPECT_THAT(harness_.generate(request)->end->message(), HasSubstr("max_queue_time"));
  EXPECT_EQ(harness_.engine->start_score({}, {}, false, false, Duration(-1)).status().code(),
            Code::kInvalidArgument);
}

// A caller that has its full share of states waits for one of its own, and delays nobody else.
TEST(Waiting, ACallThatWaitsForItsOwnShareIsPassedOver) {
  EngineOptions options;
  options.sessions_per_caller = 1;
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 4, .steps = 1}, options);
  GenerateRequest mine = waiting_request({1}, 1 << 18);
  mine.caller.account = "me";
  const auto running = harness.generate(mine);
  const auto waiting = harness.generate(mine);
  harness.turn();
  EXPECT_THAT(places(*waiting), ElementsAre(1));
  GenerateRequest hasty = request_of({2}, 3);
  hasty.caller.account = "other";
  const auto other = harness.generate(hasty);
  for (int i = 0; i < 8; ++i) harness.turn();
  EXPECT_TRUE(other->end && other->end->ok());
  EXPECT_FALSE(waiting->started.has_value());
  harness.clock.advance(kSecond);
  harness.turn();
  EXPECT_THAT(waiting->end->message(), HasSubstr("limits.sessions_per_caller"));
  const auto again = harness.generate(mine);
  harness.turn();
  running->stream->cancel();
  harness.turn();
  EXPECT_TRUE(again->started.has_value());
}

// Nobody knows when this call can run, and the calls after it do not wait for it.
TEST(Waiting, ACallDelayedByItsQuotaHasNoExpectedWait) {
  EngineOptions options;
  options.sessions_per_caller = 1;
  Harness harness(fake_spec(), {.slots = 3, .rows = 4, .values = 4, .steps = 1}, options);
  const auto call_of = [&](const std::string& account) {
    GenerateRequest request = waiting_request({1}, 1 << 18, 100 * kSecond);
    request.caller.account = account;
    return harness.generate(request);
  };
  const auto mine = call_of("me");
  std::vector<std::shared_ptr<Reader>> others = {call_of("a"), call_of("b"), call_of("c")};
  harness.turn();
  harness.clock.advance(kSecond);
  others[0]->stream->cancel();  // frees a slot in each second
  harness.turn();
  EXPECT_TRUE(others[2]->started.has_value());
  const auto held_back = call_of("me");
  const auto behind = call_of("d");
  harness.turn();
  EXPECT_EQ(held_back->queued.back().wait, std::nullopt);
  EXPECT_EQ(behind->queued.back().place, 2);
  ASSERT_TRUE(behind->queued.back().wait.has_value());
  EXPECT_NEAR(std::chrono::duration<double>(*behind->queued.back().wait).count(), 1.0, 0.1);
}

TEST(Waiting, ATimeoutAtAQuotaNamesTheQuota) {
  Harness harness(fake_spec(), {.slots = 4, .rows = 4, .values = 4, .steps = 1});
  GenerateRequest request = waiting_request({1}, 1 << 18);
  request.caller.account = request.caller.name = "ada";
  request.caller.limits.sessions = 1;
  request.caller.usage = std::make_shared<AccountUsage>();
  harness.generate(request);
  const auto waiting = harness.generate(request);
  harness.turn();
  EXPECT_EQ(harness.engine->stats().waiting, 1);
  harness.clock.advance(kSecond);
  harness.turn();
  EXPECT_EQ(waiting->end->reason(), "quota_sessions");
}

TEST(Waiting, WaitingCallsKeepToAQuotaOfStates) {
  Harness harness(fake_spec(), {.slots = 4, .rows = 4, .values = 4, .steps = 1});
  GenerateRequest request = waiting_request({1}, 1 << 18);
  request.caller.account = request.caller.name = "ada";
  request.caller.limits.sessions = 2;
  request.caller.usage = std::make_shared<AccountUsage>();
  std::vector<std::shared_ptr<Reader>> readers;
  for (int i = 0; i < 4; ++i) readers.push_back(harness.generate(request));
  harness.turn();
  EXPECT_EQ(request.caller.usage->states(), 2);
  EXPECT_EQ(harness.engine->stats().waiting, 2);
  readers[0]->stream->cancel();
  harness.turn();
  EXPECT_TRUE(readers[2]->started.has_value());
  EXPECT_EQ(request.caller.usage->states(), 2);
}

}  // namespace
}  // namespace runnel
