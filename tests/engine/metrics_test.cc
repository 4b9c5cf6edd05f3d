// The scheduler's metrics, on a virtual clock.
#include "engine/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/harness.h"

namespace runnel {
namespace {

TEST(EngineMetrics, HasStepsRowsAndValues) {
  Harness harness;
  harness.model->on_submit = [&] { harness.clock.advance(3 * kMs); };
  harness.generate(request_of({1, 2, 3, 4}, 5));
  harness.generate(request_of({5, 6}, 5));
  harness.run();
  const EngineMetrics& metrics = harness.engine->metrics();
  const int64_t steps = std::ssize(harness.model->launches);
  EXPECT_EQ(metrics.step_time.count(), steps);
  EXPECT_EQ(metrics.step_time.sum(), steps * 3'000'000);
  int64_t rows = 0;
  int64_t values = 0;
  for (const FakeModel::Launch& launch : harness.model->launches) {
    rows += std::ssize(launch.rows);
    for (const int given : launch.inputs) values += std::max(given, 1);  // 0: its own value
  }
  EXPECT_EQ(metrics.step_rows.count(), steps);
  EXPECT_EQ(metrics.step_rows.sum(), rows);
  EXPECT_EQ(metrics.step_values.sum(), values);
  EXPECT_EQ(metrics.values_sampled.value(), 10);
  EXPECT_EQ(metrics.values_consumed.value(), 3 + 1);  // the last value of each is pending
  EXPECT_EQ(harness.engine->stats().steps, steps);
}

TEST(EngineMetrics, ALaunchOfSeveralStepsCountsEach) {
  Harness harness(fake_spec(), {.slots = 2, .rows = 2, .values = 4, .steps = 4});
  harness.model->on_submit = [&] { harness.clock.advance(8 * kMs); };
  harness.generate(request_of({1}, 8));
  harness.run();
  const EngineMetrics& metrics = harness.engine->metrics();
  EXPECT_EQ(metrics.step_time.count(), 8);
  EXPECT_EQ(metrics.step_time.sum(), 8 * 2'000'000);
  EXPECT_EQ(metrics.step_rows.sum(), 8);
}

TEST(EngineMetrics, HasTheTimeBetweenValuesOfASample) {
  Harness harness;
  harness.model->on_submit = [&] { harness.clock.advance(3 * kMs); };
  harness.generate(request_of({1}, 5));
  harness.generate(request_of({2}, 5));
  harness.run();
  const Histogram& gaps = harness.engine->metrics().value_gap;
  EXPECT_EQ(gaps.count(), 2 * 4);
  EXPECT_EQ(gaps.sum(), 2 * 4 * 3'000'000);
}

TEST(EngineMetrics, HasTheTimeInTheMailbox) {
  Harness harness;
  const auto reader = harness.generate(request_of({1}, 5));
  harness.clock.advance(20 * kMs);
  harness.run();
  EXPECT_EQ(reader->started->queued, 20 * kMs);
  EXPECT_EQ(harness.engine->metrics().queue_time.count(), 1);
  EXPECT_EQ(harness.engine->metrics().queue_time.sum(), 20'000'000);
}

TEST(EngineMetrics, AScoreCallIsAdmittedWithItsFirstChunk) {
  Harness harness;
  const auto call = *harness.engine->start_score({}, {});
  std::vector<ScoredChunk> chunks;
  const auto done = [&](const Result<ScoredChunk>& chunk) { chunks.push_back(*chunk); };
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(harness.engine->score(call, {1, 2}, done).ok());
    harness.clock.advance(20 * kMs);
    harness.run();
  }
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].queued, 20 * kMs);
  EXPECT_EQ(chunks[1].queued, std::nullopt);
  EXPECT_EQ(harness.engine->metrics().queue_time.count(), 1);
}

TEST(EngineMetrics, SlotsAreCountedByThePhaseOfTheirSessions) {
  using Slots = std::array<int64_t, kSlotStates>;  // new, prompting, generating, moving, idle
  Harness harness(fake_spec(), {.slots = 8, .rows = 8, .values = 2, .steps = 1});
  const auto slots = [&] { return harness.engine->stats().slots_by_state; };
  EXPECT_TRUE(harness.create("a").ok());
  EXPECT_EQ(slots(), (Slots{1, 0, 0, 0, 0}));
  GenerateRequest request = request_of({1, 2, 3, 4, 5}, 50);
  request.session = "a";
  harness.generate(request);
  harness.turn();
  EXPECT_EQ(slots(), (Slots{0, 1, 0, 0, 0}));
  harness.generate(request_of({1}, 4));
  for (int i = 0; i < 3; ++i) harness.turn();
  EXPECT_EQ(slots(), (Slots{0, 0, 2, 0, 0}));
  harness.run();
  EXPECT_EQ(slots(), (Slots{0, 0, 0, 0, 1}));
  EXPECT_TRUE(harness.remove("a").ok());
  EXPECT_EQ(slots(), (Slots{0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace runnel
