#include "server/grpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <limits>
#include <vector>

#include "server/calls/group_events.h"
#include "server/grpc/wire.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

google::protobuf::Duration wire(int64_t seconds, int32_t nanos) {
  google::protobuf::Duration duration;
  duration.set_seconds(seconds);
  duration.set_nanos(nanos);
  return duration;
}

TEST(RequestOf, ATinyTemperatureIsGreedy) {
  for (const float tiny : {0.0F, 1e-8F, 1e-4F}) {
    v1::GenerateRequest message;
    message.mutable_sampling()->set_temperature(tiny);
    const auto request = request_of(message, {"m"}, {});
    ASSERT_TRUE(request.ok());
    EXPECT_TRUE(request->sampling.greedy) << tiny;
    EXPECT_EQ(request->sampling.temperature, 1.0F);
  }
}

TEST(DurationOf, CountsNanoseconds) {
  EXPECT_EQ(duration_of(wire(0, 0), "x")->count(), 0);
  EXPECT_EQ(duration_of(wire(1, 500), "x")->count(), 1'000'000'500);
  EXPECT_EQ(duration_of(wire(-1, -500), "x")->count(), -1'000'000'500);
}

TEST(DurationOf, LongDurationsAreCut) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_GT(duration_of(wire(kMost, 999'999'999), "x")->count(), int64_t{7} << 60);
  EXPECT_LT(duration_of(wire(-kMost - 1, -999'999'999), "x")->count(), -(int64_t{7} << 60));
}

TEST(DurationOf, MalformedDurationsAreRefused) {
  EXPECT_EQ(duration_of(wire(1, -1), "max_time").status().message(),
            "max_time has seconds = 1 and nanos = -1; expected both of one sign, and nanos between "
            "-999999999 and 999999999");
  EXPECT_FALSE(duration_of(wire(-1, 1), "x").ok());
  EXPECT_FALSE(duration_of(wire(0, 1'000'000'000), "x").ok());
  EXPECT_FALSE(duration_of(wire(0, std::numeric_limits<int32_t>::min()), "x").ok());
}

TEST(RequestOf, AnEmptyMessageHasTheDefaults) {
  const Delivery delivery{.max_values = 5, .max_delay = std::chrono::milliseconds(7)};
  const auto request = request_of({}, {"m"}, delivery);
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->session);
  EXPECT_TRUE(request->prompt.empty());
  EXPECT_EQ(request->samples, 1);
  EXPECT_FALSE(request->max_values);
  EXPECT_FALSE(request->max_time);
  EXPECT_FALSE(request->seed);
  EXPECT_EQ(request->sampling.temperature, 1.0F);
  EXPECT_EQ(request->sampling.top_p, 1.0F);
  EXPECT_FALSE(request->sampling.greedy);
  EXPECT_FALSE(request->keep);
  EXPECT_FALSE(request->expected_position);
  EXPECT_EQ(request->delivery.max_values, 5);
  EXPECT_EQ(request->delivery.max_delay, std::chrono::milliseconds(7));
}

TEST(RequestOf, ConvertsEveryField) {
  v1::GenerateRequest message = {};
  message.mutable_origin()->set_session("s");
  message.mutable_values()->add_values(3);
  message.set_samples(0);
  message.set_max_values(0);
  *message.mutable_max_time() = wire(2, 0);
  *message.mutable_max_queue_time() = wire(3, 0);
  message.mutable_sampling()->set_seed(0);
  message.mutable_sampling()->set_temperature(0.5F);
  message.mutable_sampling()->set_top_k(4);
  message.mutable_sampling()->set_top_p(0.25F);
  message.mutable_sampling()->set_min_p(0.125F);
  message.mutable_sampling()->set_greedy(true);
  message.mutable_sampling()->set_repetition_penalty(1.25F);
  message.mutable_sampling()->set_frequency_penalty(0.5F);
  message.mutable_sampling()->set_presence_penalty(-0.5F);
  (*message.mutable_sampling()->mutable_logit_bias())[7] = 2.0F;
  (*message.mutable_sampling()->mutable_logit_bias())[3] = -100.0F;
  message.add_stop()->add_values(9);
  message.set_top_log_probs(2);
  message.set_keep(false);
  message.set_expected_position(0);
  message.set_request_id("r");
  message.mutable_delivery()->set_max_values(0);
  *message.mutable_delivery()->mutable_max_delay() = wire(0, 1000);
  const auto request = request_of(message, {"m"}, {});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->session, "s");
  EXPECT_EQ(request->prompt, std::vector<int32_t>{3});
  EXPECT_EQ(request->samples, 0);  // the engine refuses it
  EXPECT_EQ(request->max_values, 0);
  EXPECT_EQ(request->max_time, Duration(std::chrono::seconds(2)));
  EXPECT_EQ(request->max_queue_time, Duration(std::chrono::seconds(3)));
  EXPECT_EQ(request->seed, 0);
  EXPECT_EQ(request->sampling.temperature, 0.5F);
  EXPECT_EQ(request->sampling.top_k, 4);
  EXPECT_EQ(request->sampling.top_p, 0.25F);
  EXPECT_EQ(request->sampling.min_p, 0.125F);
  EXPECT_TRUE(request->sampling.greedy);
  ASSERT_NE(request->penalties, nullptr);
  EXPECT_EQ(*request->penalties, (Penalties{1.25F, 0.5F, -0.5F, {{3, -100.0F}, {7, 2.0F}}}));
  EXPECT_EQ(request->stop, std::vector<std::vector<int32_t>>{{9}});
  EXPECT_EQ(request->top_log_probs, 2);
  EXPECT_EQ(request->keep, false);
  EXPECT_EQ(request->expected_position, 0);
  EXPECT_EQ(request->request_id, "r");
  EXPECT_EQ(request->delivery.max_values, 0);
  EXPECT_EQ(request->delivery.max_delay, std::chrono::microseconds(1));
}

TEST(RequestOf, TakesAStoredState) {
  v1::GenerateRequest state;
  state.mutable_origin()->set_state("dark");
  EXPECT_EQ(request_of(state, {"m"}, {})->state, "dark");
  EXPECT_EQ(request_of(state, {"m"}, {})->session, std::nullopt);
}

TEST(RequestOf, TextAndMalformedTimesAreRefused) {
  v1::GenerateRequest text;
  text.set_text("");
  EXPECT_EQ(request_of(text, {"m"}, {}).status().message(),
            "text is set, but model 'm' has no tokenizer: send numbers in values");
  v1::GenerateRequest time;
  *time.mutable_max_time() = wire(1, -1);
  EXPECT_THAT(request_of(time, {"m"}, {}).status().message(), HasSubstr("max_time has"));
  v1::GenerateRequest delay;
  *delay.mutable_delivery()->mutable_max_delay() = wire(1, -1);
  EXPECT_THAT(request_of(delay, {"m"}, {}).status().message(), HasSubstr("delivery.max_delay has"));
}

TEST(Encode, QueuedStartedAndFinishedEncodeEveryField) {
  v1::GenerateResponse message;
  encode(Queued{.place = 4, .wait = std::chrono::milliseconds(2500)}, message);
  EXPECT_EQ(message.queued().place(), 4);
  EXPECT_EQ(message.queued().expected_wait().seconds(), 2);
  EXPECT_EQ(message.queued().expected_wait().nanos(), 500'000'000);
  message.Clear();
  encode(Queued{.place = 1, .wait = {}}, message);
  EXPECT_FALSE(message.queued().has_expected_wait());
  encode(Started{.session = "s", .seed = 9, .position = 3, .numerics = "n"}, message);
  EXPECT_EQ(message.started().session(), "s");
  EXPECT_EQ(message.started().seed(), 9U);
  EXPECT_EQ(message.started().position(), 3);
  EXPECT_EQ(message.started().numerics(), "n");
  encode(Finished{.sample = 2,
                  .reason = FinishReason::kTime,
                  .prompt_values = 4,
                  .sampled_values = 5,
                  .position = 9,
                  .elapsed = std::chrono::milliseconds(1500),
                  .first_value = std::chrono::milliseconds(250)},
         message);
  EXPECT_FALSE(message.has_started());
  EXPECT_EQ(message.finished().sample(), 2);
  EXPECT_EQ(message.finished().reason(), v1::Finished::TIME);
  EXPECT_EQ(message.finished().usage().prompt_values(), 4);
  EXPECT_EQ(message.finished().usage().sampled_values(), 5);
  EXPECT_EQ(message.finished().usage().position(), 9);
  EXPECT_EQ(message.finished().usage().elapsed().nanos(), 500'000'000);
  EXPECT_EQ(message.finished().usage().first_value().nanos(), 250'000'000);
}

TEST(Encode, ValuesReplaceThoseOfTheEarlierMessage) {
  const std::vector<ValueRun> two(2,
                                  {.sample = 1, .position = 5, .values = {7}, .log_probs = {-1}});
  const std::vector<ValueRun> one = {{.sample = 0,
                                      .position = 6,
                                      .values = {8, 9},
                                      .log_probs = {-1, -2},
                                      .top_counts = {2, 0},
                                      .top = {{8, -1}, {3, -4}},
                                      .text = "ab"}};
  v1::GenerateResponse message;
  encode(SampledValues{two}, message);
  EXPECT_EQ(message.values().runs_size(), 2);
  EXPECT_EQ(message.values().runs(1).top_log_probs_size(), 0);
  encode(SampledValues{one}, message);
  ASSERT_EQ(message.values().runs_size(), 1);
  const v1::ValueRun& run = message.values().runs(0);
  EXPECT_EQ(run.sample(), 0);
  EXPECT_EQ(run.position(), 6);
  EXPECT_THAT(run.values(), ElementsAre(8, 9));
  EXPECT_THAT(run.log_probs(), ElementsAre(-1, -2));
  EXPECT_EQ(run.text(), "ab");
  ASSERT_EQ(run.top_log_probs_size(), 2);
  ASSERT_EQ(run.top_log_probs(0).top_size(), 2);
  EXPECT_EQ(run.top_log_probs(0).top(1).value(), 3);
  EXPECT_EQ(run.top_log_probs(0).top(1).log_prob(), -4);
  EXPECT_EQ(run.top_log_probs(1).top_size(), 0);
}

TEST(Encode, MessagesFitTheLimitOfClients) {
  const auto tokenizer = Tokenizer::of_bytes();
  StreamGroup group;
  for (int i = 0; i < 100000; ++i) {
    group.values.push_back({.sample = i % 64,
                            .value = 65,
                            .position = (int64_t{1} << 62) + i / 64,
                            .log_prob = -1,
                            .top_count = i % 21});
    group.top.insert(group.top.end(), i % 21, {.value = -1, .log_prob = -1});
  }
  GroupEvents events(tokenizer, true);
  events.start(group);
  v1::GenerateResponse message;
  int messages = 0;
  while (const auto event = events.next()) {
    encode(*event, message);
    EXPECT_LE(message.ByteSizeLong(), GroupEvents::kEventTarget + 1024);
    ++messages;
  }
  EXPECT_GT(messages, 10);
}

TEST(Encode, AScoreIsChunksAndATotal) {
  v1::ScoreResponse message;
  const std::vector<float> log_probs = {-1, -2};
  encode(ScoredValues{.position = 3, .log_probs = log_probs}, message);
  EXPECT_EQ(message.chunk().position(), 3);
  EXPECT_THAT(message.chunk().log_probs(), ElementsAre(-1, -2));
  encode(ScoredValues{.position = 5, .log_probs = {}}, message);
  EXPECT_EQ(message.chunk().log_probs_size(), 0);
  encode(ScoreTotal{.values = 4, .log_prob = -4 * std::log(2.0) * 3, .numerics = "n"}, message);
  EXPECT_NEAR(message.total().bits_per_dim(), 3.0, 1e-12);
  EXPECT_EQ(message.total().values(), 4);
  EXPECT_EQ(message.total().numerics(), "n");
  encode(ScoreTotal{.values = 0, .log_prob = 0, .numerics = "n"}, message);
  EXPECT_EQ(message.total().bits_per_dim(), 0.0);
}

// As for the largest event of a stream, which exists three times while it is sent.
TEST(GenerateMessage, TakesNoMoreMemoryThanIsCountedForAnEvent) {
  const auto in_use = [] {
    const auto info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  for (const int top : {0, 1, 5, 20}) {
    for (const int room : {1024, 65536}) {
      StreamGroup group;
      for (int i = 0; i < room; ++i) {
        group.values.push_back({.value = 1 << 20, .position = i, .top_count = top});
        group.top.insert(group.top.end(), top, {.value = 1 << 20, .log_prob = -1.5F});
      }
      const int64_t before = in_use();
      GroupEvents events(nullptr, top > 0);
      events.start(group);
      const auto event = events.next();
      v1::GenerateResponse message;
      encode(*event, message);
      const grpc::ByteBuffer bytes = serialize_message(message);
      EXPECT_LE(in_use() - before, GroupEvents::bytes(room, top)) << top << " of " << room;
    }
  }
}

TEST(SessionMessage, HasTheFieldsOfTheSession) {
  const SessionInfo info{.key = {"", "a"},
                         .state = SessionPhase::kGenerating,
                         .position = 7,
                         .idle = std::chrono::milliseconds(1500)};
  const ServedModel model = served_fake("m");
  const v1::Session message = session_message(info, model);
  EXPECT_EQ(message.id(), "a");
  EXPECT_EQ(message.model(), "m");
  EXPECT_EQ(message.position(), 7);
  EXPECT_EQ(message.state(), v1::Session::GENERATING);
  EXPECT_EQ(message.state_bytes(), model.engine->state_bytes());
  EXPECT_EQ(message.idle().seconds(), 1);
  EXPECT_EQ(message.idle().nanos(), 500'000'000);
}

}  // namespace
}  // namespace runnel
