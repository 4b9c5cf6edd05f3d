// Quotas of values per second and of states, tested on Engine.
#include <gtest/gtest.h>

#include <utility>

#include "engine/account_usage.h"
#include "engine/next_turn.h"
#include "tests/engine/expected.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

// A caller whose account has this quota.
Caller paced_caller(const std::string& account, int64_t values_per_second) {
  Caller caller;
  caller.account = account;
  caller.usage = std::make_shared<AccountUsage>();
  caller.usage->set_values_per_second(values_per_second, {});
  return caller;
}

TEST(Scheduler, AnAccountGetsItsQuotaOfValuesPerSecond) {
  Harness harness;
  GenerateRequest request = request_of({1}, 10'000);
  request.caller = paced_caller("slow", 100);
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(harness.engine->stats().values_sampled, 101) << "a second's, and the step beyond";
  for (int i = 0; i < 300; ++i) {
    harness.clock.advance(10 * kMs);
    harness.run();
  }
  EXPECT_EQ(harness.engine->stats().values_sampled, 401);
  EXPECT_EQ(reader->values[0], expected({1}, static_cast<int>(reader->values[0].size())));
  EXPECT_FALSE(reader->end.has_value()) << "it is paced, not ended";
}

TEST(Scheduler, ARunningStreamFollowsAChangedQuota) {
  Harness harness;
  GenerateRequest request = request_of({1}, 10'000);
  request.caller = paced_caller("slow", 100);
  harness.generate(request);
  const auto values_of_a_second = [&] {
    const int64_t before = harness.engine->stats().values_sampled;
    for (int i = 0; i < 100; ++i) {
      harness.clock.advance(10 * kMs);
      harness.run();
    }
    return harness.engine->stats().values_sampled - before;
  };
  harness.run();
  EXPECT_EQ(values_of_a_second(), 100);
  request.caller.usage->set_values_per_second(10, harness.clock.now());
  EXPECT_NEAR(static_cast<double>(values_of_a_second()), 10, 1);
  request.caller.usage->set_values_per_second(50, harness.clock.now());
  EXPECT_NEAR(static_cast<double>(values_of_a_second()), 50, 1);
}

TEST(Scheduler, PromptsAndScoresAreCountedToo) {
  Harness harness;
  const Caller caller = paced_caller("slow", 100);
  GenerateRequest request = request_of(std::vector<int32_t>(500, 1), 10);
  request.caller = caller;
  const auto reader = harness.generate(request);
  const auto call = *harness.engine->start_score(caller, {});
  bool scored = false;
  const auto done = [&](const Result<ScoredChunk>& chunk) { scored = chunk.ok(); };
  ASSERT_TRUE(harness.engine->score(call, std::vector<int32_t>(400, 2), done).ok());
  harness.run();
  const int64_t at_once = harness.engine->stats().values_consumed;
  EXPECT_GE(at_once, 100);
  EXPECT_LE(at_once, 100 + 16) << "a second's, and what the last step took";
  for (int i = 0; i < 100; ++i) {
    harness.clock.advance(100 * kMs);
    harness.run();
  }
  EXPECT_TRUE(scored);
  EXPECT_EQ(reader->values[0], expected(std::vector<int32_t>(500, 1), 10));
}

TEST(Scheduler, APacedAccountDoesNotHoldUpOthers) {
  Harness harness;
  GenerateRequest request = request_of({1}, 10'000);
  request.caller = paced_caller("slow", 1);
  const auto slow = harness.generate(request);
  harness.run();
  const auto other = harness.generate(request_of({2}, 50));
  harness.run();
  EXPECT_TRUE(other->end.has_value());
  EXPECT_EQ(other->values[0], expected({2}, 50));
  EXPECT_LT(slow->values[0].size(), 4U);
}

TEST(Scheduler, AnAccountFarBeyondItsQuotaIsRefusedWithARetryTime) {
  Harness harness;
  GenerateRequest request = request_of(std::vector<int32_t>(16, 1), 10);
  request.caller = paced_caller("ada", 2);
  harness.generate(request);
  harness.run();
  const auto refused = harness.generate(request);
  ASSERT_TRUE(refused->end.has_value());
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  EXPECT_EQ(refused->end->message(),
            "ada has used up its quota: values_per_second is 2; try again in 6.5 s");
  EXPECT_EQ(refused->end->retry_after(), std::chrono::milliseconds(6500));
  EXPECT_EQ(harness.engine->start_score(request.caller, {}).status().code(),
            Code::kResourceExhausted);
  harness.clock.advance(6500 * kMs);
  EXPECT_TRUE(harness.engine->start_score(request.caller, {}).ok());
}

// A waiting call of an account that may have two states. Once one of them is free, a call to
// another model takes it, after this engine has looked at the quota and before it counts the state.
class LostState : public testing::Test {
 protected:
  LostState() {
    ada_.name = ada_.account = "ada";
    ada_.limits.sessions = 2;
    ada_.usage = std::make_shared<AccountUsage>();
    harness_.engine->create_session(ada_, "a", [](const Result<SessionInfo>&) {});
    GenerateRequest request = request_of({1, 2, 3}, 4);
    request.caller = ada_;
    request.session = "a";
    harness_.generate(request);
    harness_.run();
    request = request_of({1}, 1 << 18);
    request.caller = ada_;
    running_ = harness_.generate(request);
    harness_.turn();
    // The next turn of a conversation: the engine reads the last values of its session in between.
    request = request_of({}, 3);
    request.caller = ada_;
    request.session = "a";
    request.keep = false;
    request.turn = NextTurn{.values = {99, 4, 5}, .end_of_turn = 99, .end = 1};
    request.max_queue_time = std::chrono::seconds(10);
    waiting_ = harness_.generate(request);
    harness_.turn();
    EXPECT_EQ(harness_.engine->stats().waiting, 1);
  }

  // Ends the running call.
  void lose() {
    harness_.clock.advance(9000 * kMs);
    bool is_taken = false;
    harness_.model->on_read = [&] {
      if (!std::exchange(is_taken, true)) {
        EXPECT_TRUE(ada_.usage->begin_states(1, 2));
      }
    };
    running_->stream->cancel();
    harness_.turn();
    harness_.model->on_read = {};
    EXPECT_TRUE(is_taken);
    EXPECT_FALSE(waiting_->end.has_value());
    EXPECT_EQ(harness_.engine->stats().waiting, 1);
  }

  Harness harness_{fake_spec(), {.slots = 6, .rows = 4, .values = 8, .steps = 1, .recent = 8}};
  Caller ada_;
  std::shared_ptr<Reader> running_, waiting_;
};

TEST_F(LostState, TheCallKeepsWaiting) {
  lose();
  ada_.usage->end_state();
  harness_.run();
  ASSERT_TRUE(waiting_->end);
  EXPECT_TRUE(waiting_->end->ok()) << waiting_->end->to_string();
  EXPECT_EQ(ada_.usage->states(), 1);
}

TEST_F(LostState, TheCallWaitsNoLongerThanItAskedFor) {
  lose();
  harness_.clock.advance(1000 * kMs);
  harness_.turn();
  ASSERT_TRUE(waiting_->end);
  EXPECT_EQ(waiting_->end->reason(), "quota_sessions");
}

}  // namespace
}  // namespace runnel
