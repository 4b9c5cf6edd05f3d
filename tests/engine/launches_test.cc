// Two launches in flight: calls have the same results as with one, and the device never waits for
// the host.

#include <gtest/gtest.h>

#include "engine/rewinds.h"
#include "tests/engine/expected.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

constexpr int kSteps = 4;
constexpr ModelLimits kLimits = {
    .slots = 8, .rows = 8, .values = 16, .steps = kSteps, .launches = 2};

// A harness with a call on session "a" and a launch in flight.
struct Running : Harness {
  explicit Running(int64_t max_values = 100) : Harness(fake_spec(), kLimits) {
    EXPECT_TRUE(create("a").ok());
    request = request_of({1, 2}, max_values);
    request.session = "a";
    request.delivery.max_values = 1;
    reader = generate(request);
    for (int i = 0; i < 4; ++i) turn();
    EXPECT_GT(sampled(), std::ssize(reader->values[0]));
  }

  // The number of values that the model has sampled.
  int64_t sampled() const {
    int64_t steps = 0;
    for (const FakeModel::Launch& launch : model->launches) {
      if (launch.rows[0].want == Want::kNext) steps += launch.steps;
    }
    return steps;
  }
  // The session has the position of the model's slot, and continues as if nothing had happened.
  void expect_to_go_on() {
    const std::vector<int32_t> all = expected({1, 2}, 200);
    const int64_t position = get("a")->position;
    EXPECT_EQ(position, 2 + sampled());
    GenerateRequest more = request_of({}, 5);
    more.session = "a";
    const auto rest = generate(more);
    run();
    const auto from = all.begin() + (position - 2);
    EXPECT_EQ(rest->values[0], std::vector<int32_t>(from, from + 5));
  }

  GenerateRequest request;
  std::shared_ptr<Reader> reader;
};

TEST(Launches, ALaunchIsSubmittedBeforeTheLastIsDelivered) {
  Harness harness(fake_spec(), kLimits);
  GenerateRequest request = request_of({1}, 5 * kSteps);
  request.delivery.max_values = 1;
  const auto reader = harness.generate(request);
  for (int launch = 1; launch <= 5; ++launch) {
    harness.turn();
    EXPECT_EQ(harness.model->launches.size(), static_cast<size_t>(launch));
    EXPECT_EQ(reader->values[0].size(), static_cast<size_t>((launch - 1) * kSteps));
  }
  harness.turn();
  EXPECT_EQ(harness.model->launches.size(), 5U) << "nothing is left to sample";
  EXPECT_EQ(reader->values[0], expected({1}, 5 * kSteps));
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kLength);
  EXPECT_FALSE(harness.engine->turn());
}

TEST(Launches, CallsStartAndEndWhileLaunchesAreInFlight) {
  Harness harness(fake_spec(), kLimits);
  std::vector<std::shared_ptr<Reader>> readers;
  for (int i = 0; i < 40; ++i) {
    readers.push_back(harness.generate(request_of({i}, 1 + i * 7 % 23)));
    for (int turn = 0; turn < 1 + i % 3; ++turn) harness.turn();
  }
  harness.run();
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(readers[i]->values[0], expected({i}, 1 + i * 7 % 23)) << i;
  }
  EXPECT_EQ(harness.engine->stats().sessions_free, kLimits.slots);
}

TEST(Launches, PromptsStopsAndScoresAreCorrectWithLaunchesInFlight) {
  Running running;
  const std::vector<int32_t> text = expected({5, 6, 7}, 30);
  GenerateRequest stops = request_of({5, 6, 7}, 30);
  stops.stop = {{text[10], text[11]}};
  const auto stopped = running.generate(stops);
  const auto scoring = *running.engine->start_score({}, {});
  std::vector<float> log_probs;
  ASSERT_TRUE(running.engine
                  ->score(scoring, {9, 8, 7},
                          [&](const Result<ScoredChunk>& chunk) { log_probs = chunk->log_probs; })
                  .ok());
  running.run();
  EXPECT_EQ(stopped->values[0], std::vector<int32_t>(text.begin(), text.begin() + 12));
  EXPECT_EQ(stopped->finished[0].reason, FinishReason::kStop);
  EXPECT_EQ(log_probs, (std::vector<float>{FakeModel::expected_log_prob({9, 8, 7}, 1),
                                           FakeModel::expected_log_prob({9, 8, 7}, 2)}));
  EXPECT_EQ(running.reader->values[0], expected({1, 2}, 100));
}

TEST(Launches, ACancelledSessionContinuesAfterTheValuesInFlight) {
  Running running;
  running.reader->stream->cancel();
  running.turn();
  EXPECT_EQ(running.engine->active_calls(), 0);
  running.expect_to_go_on();
}

TEST(Launches, ATimeoutDeliversValuesInFlight) {
  Harness harness(fake_spec(), kLimits);
  GenerateRequest request = request_of({1}, 1000);
  request.max_time = 100 * kMs;
  harness.model->on_submit = [&] { harness.clock.advance(10 * kMs); };
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(reader->finished[0].reason, FinishReason::kTime);
  EXPECT_EQ(reader->values[0], expected({1}, 10 * kSteps));
  EXPECT_EQ(reader->finished[0].position, 1 + 10 * kSteps);
}

TEST(Launches, ARetryTakesOverAllSampledValues) {
  Running running;
  GenerateRequest request = request_of({4}, 50);
  request.session = "b";
  request.request_id = "once";
  ASSERT_TRUE(running.create("b").ok());
  const auto first = running.generate(request);
  for (int i = 0; i < 4; ++i) running.turn();
  const auto again = running.generate(request);
  running.run();
  EXPECT_EQ(first->end->code(), Code::kAborted);
  EXPECT_EQ(again->values[0], expected({4}, 50));
}

// A call with a request_id on session "b". Some of its values are in flight.
struct Tried {
  Tried(Harness& harness, GenerateRequest& request) {
    request = request_of({4}, 50);
    request.session = "b";
    request.request_id = "once";
    EXPECT_TRUE(harness.create("b").ok());
    first = harness.generate(request);
    for (int i = 0; i < 4; ++i) harness.turn();
  }
  std::shared_ptr<Reader> first;
};

TEST(Launches, ARetryIsCompleteOrRefusedIfItsRecordFillsInFlight) {
  int refused = 0;
  for (int room = 1; room <= 4 * kSteps; ++room) {
    EngineOptions options;
    options.record_bytes = room * static_cast<int64_t>(sizeof(StreamValue));
    Harness harness(fake_spec(), kLimits, options);
    GenerateRequest request;
    const Tried tried(harness, request);
    const auto again = harness.generate(request);
    harness.run();
    ASSERT_TRUE(again->end.has_value());
    if (again->end->ok()) {
      EXPECT_EQ(again->values[0], expected({4}, 50)) << room;
    } else {
      EXPECT_EQ(again->end->code(), Code::kAborted) << room;
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Launches, ARetryFindsThatTheDeviceHasFailed) {
  int found = 0;
  for (int good = 0; good < 8; ++good) {
    Harness harness(fake_spec(), kLimits);
    int launches = 0;
    harness.model->fails = [&] { return ++launches > good; };
    GenerateRequest request;
    const Tried tried(harness, request);
    if (launches <= good || !harness.engine->failure().ok()) continue;
    const auto again = harness.generate(request);  // the failed launch is still in flight
    harness.run();
    EXPECT_EQ(again->end->code(), Code::kUnavailable) << good;
    ++found;
  }
  EXPECT_GT(found, 0);
}

TEST(Launches, DeletingASessionInFlightFreesItsSlot) {
  Running running;
  EXPECT_TRUE(running.remove("a").ok());
  const auto other = running.generate(request_of({3}, 20));
  running.run();
  EXPECT_EQ(running.reader->end->code(), Code::kAborted);
  EXPECT_EQ(other->values[0], expected({3}, 20));
  EXPECT_EQ(running.engine->stats().sessions_free, kLimits.slots);
}

TEST(Launches, ASlowReaderLosesNothing) {
  Harness harness(fake_spec(), kLimits);
  GenerateRequest request = request_of({1}, 60);
  const auto slow = std::make_shared<Reader>();
  slow->stream = std::make_shared<TokenStream>(request.delivery, 2 * kSteps, 0, [] {});
  ASSERT_TRUE(harness.engine->generate(request, slow->stream).ok());
  harness.run();
  EXPECT_FALSE(harness.engine->turn());  // there is no work, so the engine does not spin
  for (int i = 0; i < 200 && !slow->end; ++i) {
    slow->read();
    harness.engine->turn();
  }
  EXPECT_EQ(slow->values[0], expected({1}, 60));
}

TEST(Launches, AFailureEndsEveryCallAndNothingIsSubmittedAfterIt) {
  Running running;
  running.model->fails = [] { return true; };
  running.run();
  EXPECT_EQ(running.reader->end->code(), Code::kUnavailable);
  EXPECT_EQ(running.engine->active_calls(), 0);
  const size_t launches = running.model->launches.size();
  EXPECT_FALSE(running.engine->turn());
  EXPECT_EQ(running.model->launches.size(), launches);
}

TEST(Launches, ALaunchAfterAFailedOneFailsToo) {
  Running running;
  int launches = 0;
  running.model->fails = [&] { return ++launches == 1; };
  running.run();
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(running.reader->end->code(), Code::kUnavailable);
}

TEST(Launches, AnEngineThatEndsCollectsLaunchesInFlight) {
  std::shared_ptr<Reader> reader;
  {
    Running running;
    reader = running.reader;
  }
  reader->read();
  EXPECT_EQ(reader->end->code(), Code::kUnavailable);
}

TEST(Launches, WithRewindOnlyOneLaunchIsInFlight) {
  ModelLimits limits = kLimits;
  EngineOptions options;
  options.rewind_values = 8;
  options.rewind_every = 4;
  limits.slots *= static_cast<int>(1 + snapshots_of(options, limits.steps));
  Harness harness(fake_spec(), limits, options);
  const auto reader = harness.generate(request_of({1}, 20));
  harness.turn();
  EXPECT_EQ(reader->values[0].size(), size_t{kSteps});
}

}  // namespace
}  // namespace runnel
