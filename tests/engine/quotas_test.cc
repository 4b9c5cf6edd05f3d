// Quotas of values per second, tested on Engine.
#include <gtest/gtest.h>

#include "engine/account_usage.h"
#include "tests/engine/expected.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

constexpr Duration kMs = std::chrono::milliseconds(1);

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

}  // namespace
}  // namespace runnel
