// The mailbox, and events that end all calls at once, tested on Engine.
#include <gtest/gtest.h>

#include <optional>

#include "tests/engine/harness.h"

namespace runnel {
namespace {

TEST(Scheduler, ADeviceThatFailsEndsEveryCallAndRefusesNewOnes) {
  Harness harness(fake_spec(), {.slots = 4, .rows = 1, .values = 1, .steps = 1});
  ASSERT_TRUE(harness.create("a").ok());
  const auto stepped = harness.generate(request_of({1}, 10));
  const auto waiting = harness.generate(request_of({2}, 10));
  const auto scoring = *harness.engine->start_score({}, {});
  std::optional<Status> scored;
  ASSERT_TRUE(harness.engine
                  ->score(scoring, {1, 2, 3, 4},
                          [&](const Result<ScoredChunk>& chunk) { scored = chunk.status(); })
                  .ok());
  harness.turn();
  EXPECT_TRUE(harness.engine->failure().ok());
  harness.model->fails = [] { return true; };
  harness.turn();
  const std::string status =
      "UNAVAILABLE: the device of model 'fake' has failed: the fake device failed; the server "
      "stops, and its sessions are lost: call again once it is back, or another one";
  EXPECT_EQ(harness.engine->failure().to_string(), status);
  harness.run();
  EXPECT_EQ(stepped->end->to_string(), status);
  EXPECT_EQ(waiting->end->to_string(), status);
  EXPECT_EQ(scored->to_string(), status);
  EXPECT_EQ(harness.engine->active_calls(), 0);

  const size_t launches = harness.model->launches.size();
  EXPECT_EQ(harness.generate(request_of({1}, 10))->end->to_string(), status);
  EXPECT_EQ(harness.engine->start_score({}, {}).status().to_string(), status);
  EXPECT_EQ(harness.create("b").status().to_string(), status);
  harness.run();
  EXPECT_EQ(harness.model->launches.size(), launches) << "nothing is submitted to it";
}

TEST(Scheduler, DrainRefusesNewCallsAndLetsOthersEnd) {
  Harness harness;
  const auto running = harness.generate(request_of({1}, 20));
  harness.turn();
  harness.engine->drain();
  const auto refused = harness.generate(request_of({2}, 5));
  EXPECT_EQ(refused->end->code(), Code::kUnavailable);
  EXPECT_EQ(harness.create("x").status().code(), Code::kUnavailable);
  harness.run();
  EXPECT_EQ(running->values[0].size(), 20U);
  EXPECT_TRUE(running->end->ok());
}

TEST(Scheduler, EndAllEndsEveryCallWithItsStatus) {
  Harness harness;
  const auto a = harness.generate(request_of({1}, 20));
  const auto b = harness.generate(request_of({2}, 20));
  harness.turn();
  harness.engine->end_all({Code::kUnavailable, "going down"});
  harness.turn();
  for (const auto& reader : {a, b}) {
    ASSERT_TRUE(reader->end.has_value());
    EXPECT_EQ(reader->end->to_string(), "UNAVAILABLE: going down");
  }
  EXPECT_EQ(harness.engine->stats().sessions_free, 8);
}

TEST(Scheduler, AFullMailboxRefusesAtOnce) {
  EngineOptions options;
  options.mailbox = 2;
  Harness harness(fake_spec(), Harness::default_limits(), options);
  harness.generate(request_of({1}, 1));
  harness.generate(request_of({1}, 1));
  const auto refused = harness.generate(request_of({1}, 1));
  ASSERT_TRUE(refused->end.has_value());
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  EXPECT_TRUE(refused->end->retry_after().has_value());
}

TEST(Scheduler, AFullMailboxTakesTheStateOfAnAdmittedCall) {
  EngineOptions options;
  options.mailbox = 1;
  Harness harness(fake_spec(), Harness::default_limits(), options);
  ASSERT_TRUE(harness.create("a").ok());
  harness.generate(request_of({1}, 1));
  std::vector<Status> refused;
  std::vector<Status> taken;
  for (const bool admitted : {false, true}) {
    auto& ends = admitted ? taken : refused;
    harness.engine->get_session(
        {"", "a"}, [&](const auto& found) { ends.push_back(found.status()); }, admitted);
    harness.engine->export_session(
        {"", "a"}, std::make_shared<StateImage>(),
        [&](const auto& moved) { ends.push_back(moved.status()); }, admitted);
  }
  ASSERT_EQ(refused.size(), 2U);
  for (const Status& status : refused) EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_TRUE(taken.empty());
  harness.turn();
  ASSERT_EQ(taken.size(), 2U);
  for (const Status& status : taken) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Scheduler, AMailboxFullOfPromptsRefusesByTheirBytes) {
  EngineOptions options;
  options.mailbox_bytes = 1 << 20;
  Harness harness(fake_spec(), Harness::default_limits(), options);
  const GenerateRequest large = request_of(std::vector<int32_t>(200'000, 1), 1);  // 800 kB
  const auto first = harness.generate(large);
  const auto refused = harness.generate(large);
  EXPECT_EQ(refused->end->code(), Code::kResourceExhausted);
  const auto small = harness.generate(request_of({1}, 1));
  EXPECT_FALSE(small->end.has_value());
  harness.turn();
  EXPECT_FALSE(harness.generate(large)->end.has_value());
}

TEST(Scheduler, AMailboxFullOfPagesDoesNotHoldUpAGeneration) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  const auto running = harness.generate(request_of({1}, 1000));
  harness.turn();
  int answered = 0;
  for (int i = 0; i < 1000; ++i) {
    harness.engine->list_sessions("", "", 1000, [&](const Result<SessionPage>& page) {
      EXPECT_EQ(page->sessions.size(), 1U);
      ++answered;
    });
  }
  for (int turns = 1; answered < 1000; ++turns) {
    const int before = answered;
    const size_t launches = harness.model->launches.size();
    harness.turn();
    EXPECT_GT(answered, before);
    EXPECT_LE(answered - before, 10);
    ASSERT_EQ(harness.model->launches.size(), launches + 1);
  }
}

}  // namespace
}  // namespace runnel
