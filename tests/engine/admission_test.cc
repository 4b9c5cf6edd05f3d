// Where calls start (a session, a state, nothing) and how calls are refused, tested on Engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fields.h"
#include "engine/account_usage.h"
#include "tests/engine/expected.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;

TEST(Scheduler, ASessionContinuesAtItsPosition) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  std::vector<int32_t> known;
  for (int round = 0; round < 6; ++round) {
    // One chunk in two has a prompt.
    GenerateRequest request =
        request_of(round % 2 == 0 ? std::vector{round} : std::vector<int32_t>(), 3);
    request.session = "a";
    request.expected_position = static_cast<int64_t>(known.size());
    known.insert(known.end(), request.prompt.begin(), request.prompt.end());
    const auto reader = harness.generate(request);
    harness.run();
    ASSERT_TRUE(reader->end->ok()) << reader->end->to_string();
    const auto values = expected(known, 3);
    EXPECT_EQ(reader->values[0], values);
    known.insert(known.end(), values.begin(), values.end());
    EXPECT_EQ(harness.get("a")->position, static_cast<int64_t>(known.size()));
    EXPECT_EQ(harness.get("a")->state, SessionPhase::kIdle);
  }
  EXPECT_TRUE(harness.remove("a").ok());
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
}

TEST(Scheduler, WithoutKeepASessionIsLeftAsItWas) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest feed = request_of({1, 2}, 2);
  feed.session = "a";
  const auto fed = harness.generate(feed);
  harness.run();
  std::vector<int32_t> known = {1, 2};
  known.insert(known.end(), fed->values[0].begin(), fed->values[0].end());
  GenerateRequest branch = request_of({9}, 4);
  branch.session = "a";
  branch.samples = 2;
  const auto branched = harness.generate(branch);
  harness.run();
  auto with_nine = known;
  with_nine.push_back(9);
  EXPECT_EQ(branched->values[0], expected(with_nine, 4, 1, 0));
  EXPECT_EQ(branched->values[1], expected(with_nine, 4, 1, 1));
  EXPECT_EQ(branched->started->session, "");
  EXPECT_EQ(harness.get("a")->position, 4);
  GenerateRequest go_on = request_of({}, 4);
  go_on.session = "a";
  const auto after = harness.generate(go_on);
  harness.run();
  EXPECT_EQ(after->values[0], expected(known, 4));
}

TEST(Scheduler, RefusalsNameTheFault) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  EXPECT_EQ(harness.create("a").status().code(), Code::kAlreadyExists);
  EXPECT_EQ(harness.get("b").status().code(), Code::kNotFound);
  EXPECT_EQ(harness.remove("b").code(), Code::kNotFound);

  GenerateRequest request = request_of({1}, 50);
  request.session = "b";
  auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->end->code(), Code::kNotFound);

  request.session = "a";
  request.prompt.clear();
  reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->end->code(), Code::kInvalidArgument);

  request.prompt = {1};
  request.expected_position = 3;
  reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->end->code(), Code::kAborted);
  EXPECT_THAT(reader->end->message(), HasSubstr("is at position 0, not at expected_position 3"));

  request.expected_position.reset();
  const auto running = harness.generate(request);
  harness.turn();
  reader = harness.generate(request);
  harness.turn();
  EXPECT_EQ(reader->end->code(), Code::kAborted);
  EXPECT_THAT(reader->end->message(), HasSubstr("busy"));
  EXPECT_EQ(harness.get("a")->state, SessionPhase::kGenerating);
  EXPECT_FALSE(running->end.has_value());
}

TEST(Scheduler, AFullPoolRefusesWithAHintAndNothingIsEvicted) {
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 8, .steps = 1});
  ASSERT_TRUE(harness.create("a").ok());
  const auto running = harness.generate(request_of({1}, 30));
  harness.turn();
  const auto refused = harness.generate(request_of({2}, 30));
  harness.turn();
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  EXPECT_TRUE(refused->end->retry_after().has_value());
  EXPECT_THAT(refused->end->message(), HasSubstr("0 of 2 sessions are free"));
  EXPECT_EQ(harness.create("b").status().code(), Code::kResourceExhausted);
  harness.run();
  EXPECT_EQ(running->values[0], expected({1}, 30));
  EXPECT_TRUE(harness.create("b").ok());
}

TEST(Scheduler, OneCallerHoldsNoMoreStatesThanItsShare) {
  EngineOptions options;
  options.sessions_per_caller = 2;
  Harness harness(fake_spec(), {.slots = 16, .rows = 8, .values = 16, .steps = 1}, options);
  const auto create = [&](const Caller& caller) {
    Status status;
    harness.engine->create_session(
        caller, "", [&](const Result<SessionInfo>& info) { status = info.status(); });
    harness.turn();
    return status;
  };
  Caller here, there, named, large;
  here.account = "192.0.2.1";
  there.account = "192.0.2.2";
  named.name = named.account = "ada";
  large.name = large.account = "grace";
  large.limits.sessions = 3;
  large.usage = std::make_shared<AccountUsage>();
  for (const Caller& caller : {here, there, named}) {
    EXPECT_TRUE(create(caller).ok());
    EXPECT_TRUE(create(caller).ok());
    const Status refused = create(caller);
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_THAT(refused.message(), HasSubstr("limits.sessions_per_caller"));
    EXPECT_TRUE(refused.retry_after().has_value());
  }
  // The states of running calls count toward the share, too.
  GenerateRequest request = request_of({1}, 3);
  request.caller = here;
  harness.generate(request);
  harness.run();
  EXPECT_EQ(harness.readers.back()->end->code(), Code::kResourceExhausted);
  request.caller = large;
  request.samples = 2;
  harness.generate(request);
  harness.run();
  EXPECT_TRUE(harness.readers.back()->end->ok()) << "a caller's own limit comes first";
  request.samples = 4;
  harness.generate(request);
  harness.run();
  EXPECT_EQ(harness.readers.back()->end->code(), Code::kInvalidArgument);
  // States are free again after their call ends or their session is deleted.
  EXPECT_EQ(large.usage->states(), 0);
  EXPECT_TRUE(create(large).ok());
  EXPECT_TRUE(create(large).ok());
}

TEST(Scheduler, MoreSamplesThanStatesAreRefusedPermanently) {
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 8, .steps = 1});
  GenerateRequest request = request_of({1}, 3);
  request.samples = 3;
  const auto refused = harness.generate(request);
  harness.turn();
  EXPECT_EQ(refused->end->code(), Code::kInvalidArgument);
  EXPECT_FALSE(refused->end->retry_after().has_value());
  EXPECT_EQ(refused->end->field(), fields::kSamples);
  EXPECT_THAT(refused->end->message(),
              HasSubstr("samples asks for 3 states, and the server keeps 2 in all; ask for fewer"));
}

TEST(Scheduler, IdleSessionsEndAfterTheirTimeAndNoOthers) {
  EngineOptions options;
  options.idle_timeout = std::chrono::seconds(60);
  Harness harness(fake_spec(), Harness::default_limits(), options);
  ASSERT_TRUE(harness.create("a").ok());
  harness.clock.advance(std::chrono::seconds(59));
  harness.turn();
  EXPECT_TRUE(harness.get("a").ok());
  harness.clock.advance(std::chrono::seconds(3));
  harness.turn();
  EXPECT_EQ(harness.get("a").status().code(), Code::kNotFound);
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
}

TEST(Scheduler, CallsFromASessionKeepItAlive) {
  EngineOptions options;
  options.idle_timeout = std::chrono::seconds(60);
  Harness harness(fake_spec(), Harness::default_limits(), options);
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest branch = request_of({1}, 2);
  branch.session = "a";
  branch.keep = false;
  for (int i = 0; i < 4; ++i) {
    harness.clock.advance(std::chrono::seconds(40));
    const auto reader = harness.generate(branch);
    harness.run();
    ASSERT_TRUE(reader->end->ok()) << reader->end->to_string();
    EXPECT_EQ(harness.get("a")->idle, Duration(0));
    EXPECT_EQ(harness.get("a")->state, SessionPhase::kNew) << "no call has run on it";
  }
  harness.clock.advance(std::chrono::seconds(62));
  harness.turn();
  EXPECT_EQ(harness.get("a").status().code(), Code::kNotFound);
}

TEST(Scheduler, ASessionThatACallIsAboutToChangeDoesNotExpire) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  harness.clock.advance(std::chrono::minutes(59));
  bool found = false;
  harness.engine->hold_session({"", "a"}, [&](const auto& here) { found = here.ok(); });
  harness.run();
  EXPECT_TRUE(found);
  harness.clock.advance(std::chrono::minutes(2));
  harness.run();
  EXPECT_TRUE(harness.get("a").ok());
}

TEST(Scheduler, ASavedSessionKeepsItsSlotUntilACallNeedsIt) {
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 8, .steps = 1});
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest request = request_of({1}, 3);
  request.session = "a";
  harness.generate(request);
  harness.run();
  const int64_t position = harness.get("a")->position;
  const auto free = [&] {
    harness.turn();
    return harness.engine->stats().sessions_free;
  };
  harness.engine->mark_saved({"", "a"}, position - 1);
  EXPECT_EQ(free(), 1);
  harness.engine->mark_saved({"", "a"}, position);
  EXPECT_EQ(free(), 2);
  request.keep = false;
  const auto reads = harness.generate(request);
  harness.run();
  EXPECT_TRUE(reads->end->ok()) << "in the other slot";
  ASSERT_TRUE(harness.fork("a", {"b"}).ok());
  EXPECT_EQ(harness.fork("a", {"c"}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(free(), 1);
  harness.engine->hold_session({"", "a"}, [](const auto& held) { EXPECT_TRUE(held.ok()); });
  EXPECT_EQ(free(), 0);
  harness.engine->mark_saved({"", "a"}, position);
  EXPECT_EQ(free(), 1);
  const auto other = harness.generate(request_of({2}, 3));
  harness.run();
  EXPECT_TRUE(other->end->ok());
  EXPECT_EQ(harness.get("a").status().code(), Code::kNotFound);
  EXPECT_TRUE(harness.get("b").ok());
}

TEST(Scheduler, DeletingASessionAbortsTheCallThatRunsOnIt) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest request = request_of({1}, 50);
  request.session = "a";
  const auto reader = harness.generate(request);
  harness.turn();
  EXPECT_TRUE(harness.remove("a").ok());
  harness.turn();
  EXPECT_EQ(reader->end->code(), Code::kAborted);
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
  EXPECT_EQ(harness.engine->active_calls(), 0);
}

}  // namespace
}  // namespace runnel
