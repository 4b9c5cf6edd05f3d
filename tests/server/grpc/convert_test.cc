#include "server/grpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace runnel {
namespace {

using ::testing::HasSubstr;

google::protobuf::Duration wire(int64_t seconds, int32_t nanos) {
  google::protobuf::Duration duration;
  duration.set_seconds(seconds);
  duration.set_nanos(nanos);
  return duration;
}

TEST(DurationOf, CountsNanoseconds) {
  EXPECT_EQ(duration_of(wire(0, 0), "x")->count(), 0);
  EXPECT_EQ(duration_of(wire(1, 500), "x")->count(), 1'000'000'500);
  EXPECT_EQ(duration_of(wire(-1, -500), "x")->count(), -1'000'000'500);
}

TEST(DurationOf, WhatIsTooLongIsCut) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_GT(duration_of(wire(kMost, 999'999'999), "x")->count(), int64_t{7} << 60);
  EXPECT_LT(duration_of(wire(-kMost - 1, -999'999'999), "x")->count(), -(int64_t{7} << 60));
}

TEST(DurationOf, WhatIsMalformedIsRefused) {
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

TEST(RequestOf, EveryFieldArrives) {
  v1::GenerateRequest message = {};
  message.mutable_origin()->set_session("s");
  message.mutable_values()->add_values(3);
  message.set_samples(0);
  message.set_max_values(0);
  *message.mutable_max_time() = wire(2, 0);
  message.mutable_sampling()->set_seed(0);
  message.mutable_sampling()->set_temperature(0.5F);
  message.mutable_sampling()->set_top_k(4);
  message.mutable_sampling()->set_top_p(0.25F);
  message.mutable_sampling()->set_min_p(0.125F);
  message.mutable_sampling()->set_greedy(true);
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
  EXPECT_EQ(request->seed, 0);
  EXPECT_EQ(request->sampling.temperature, 0.5F);
  EXPECT_EQ(request->sampling.top_k, 4);
  EXPECT_EQ(request->sampling.top_p, 0.25F);
  EXPECT_EQ(request->sampling.min_p, 0.125F);
  EXPECT_TRUE(request->sampling.greedy);
  EXPECT_EQ(request->stop, std::vector<std::vector<int32_t>>{{9}});
  EXPECT_EQ(request->top_log_probs, 2);
  EXPECT_EQ(request->keep, false);
  EXPECT_EQ(request->expected_position, 0);
  EXPECT_EQ(request->request_id, "r");
  EXPECT_EQ(request->delivery.max_values, 0);
  EXPECT_EQ(request->delivery.max_delay, std::chrono::microseconds(1));
}

TEST(RequestOf, TextStoredStatesAndMalformedTimesAreRefused) {
  v1::GenerateRequest text;
  text.set_text("");
  EXPECT_EQ(request_of(text, {"m"}, {}).status().message(),
            "text is set, but model 'm' has no tokenizer: send values");
  v1::GenerateRequest state;
  state.mutable_origin()->set_state("x\n");
  EXPECT_EQ(request_of(state, {"m"}, {}).status().code(), Code::kNotFound);
  EXPECT_THAT(request_of(state, {"m"}, {}).status().message(),
              HasSubstr("no stored state 'x\\x0a'"));
  v1::GenerateRequest time;
  *time.mutable_max_time() = wire(1, -1);
  EXPECT_THAT(request_of(time, {"m"}, {}).status().message(), HasSubstr("max_time has"));
  v1::GenerateRequest delay;
  *delay.mutable_delivery()->mutable_max_delay() = wire(1, -1);
  EXPECT_THAT(request_of(delay, {"m"}, {}).status().message(), HasSubstr("delivery.max_delay has"));
}

// A group as a stream would give it: samples advance in any order, positions of each without gaps.
StreamGroup random_group(std::mt19937& random, int values, int samples, int top) {
  StreamGroup group;
  if (random() % 2 == 0)
    group.started = Started{.session = "s", .seed = 9, .position = 3, .numerics = "n"};
  std::vector<int64_t> next(samples, 100);
  for (int i = 0; i < values; ++i) {
    const int sample = static_cast<int>(random() % samples);
    const int count = top == 0 ? 0 : static_cast<int>(random() % (top + 1));
    group.values.push_back({.sample = sample,
                            .value = static_cast<int32_t>(random() % 256),
                            .position = next[sample]++,
                            .log_prob = -static_cast<float>(random() % 100),
                            .top_count = count});
    for (int j = 0; j < count; ++j) {
      group.top.push_back({static_cast<int32_t>(random() % 256), -static_cast<float>(j)});
    }
  }
  for (int i = 0; i < samples; ++i) group.finished.push_back({.sample = i});
  return group;
}

// What the messages say, put together again, must be what the group held, sample by sample.
void expect_complete(const StreamGroup& group, bool with_top) {
  GroupMessages messages;
  messages.start(group, with_top);
  v1::GenerateResponse message;
  std::map<int, std::vector<StreamValue>> expected;
  std::map<int, std::vector<std::vector<int32_t>>> expected_top;
  size_t at = 0;
  for (const StreamValue& value : group.values) {
    expected[value.sample].push_back(value);
    auto& top = expected_top[value.sample].emplace_back();
    for (int i = 0; i < value.top_count; ++i) top.push_back(group.top[at++].value);
  }
  std::map<int, size_t> seen;
  size_t started = 0;
  size_t finished = 0;
  while (messages.next(message)) {
    EXPECT_LE(message.ByteSizeLong(), GroupMessages::kMessageTarget + 1024);
    started += message.has_started() ? 1 : 0;
    if (message.has_finished()) {
      EXPECT_EQ(message.finished().sample(), static_cast<int>(finished++));
    }
    if (!message.has_values()) continue;
    EXPECT_EQ(finished, 0U) << "values before Finished";
    for (const v1::ValueRun& run : message.values().runs()) {
      ASSERT_EQ(run.top_log_probs_size(), with_top ? run.values_size() : 0);
      for (int i = 0; i < run.values_size(); ++i) {
        const size_t index = seen[run.sample()]++;
        const StreamValue& value = expected[run.sample()].at(index);
        EXPECT_EQ(run.values(i), value.value);
        EXPECT_EQ(run.log_probs(i), value.log_prob);
        EXPECT_EQ(run.position() + i, value.position);
        if (!with_top) continue;
        std::vector<int32_t> top;
        for (const auto& entry : run.top_log_probs(i).top()) top.push_back(entry.value());
        EXPECT_EQ(top, expected_top[run.sample()].at(index));
      }
    }
  }
  size_t total = 0;
  for (const auto& [sample, count] : seen) total += count;
  EXPECT_EQ(total, group.values.size());
  EXPECT_EQ(started, group.started ? 1U : 0U);
  EXPECT_EQ(finished, group.finished.size());
}

TEST(GroupMessages, HoldAllOfAGroupInOrder) {
  std::mt19937 random(17);
  for (int i = 0; i < 300; ++i) {
    const int samples = 1 + static_cast<int>(random() % 6);
    const int top = static_cast<int>(random() % 3);
    expect_complete(random_group(random, static_cast<int>(random() % 50), samples, top), top > 0);
  }
}

TEST(GroupMessages, NoMessageOutgrowsWhatClientsTake) {
  std::mt19937 random(18);
  expect_complete(random_group(random, 40000, 3, 20), true);
  expect_complete(random_group(random, 100000, 64, 0), false);
}

TEST(GroupMessages, AValueAfterAGapBeginsARun) {
  StreamGroup group;
  group.values = {{.sample = 0, .value = 1, .position = 5},
                  {.sample = 0, .value = 2, .position = 6},
                  {.sample = 0, .value = 3, .position = 9}};
  GroupMessages messages;
  messages.start(group, false);
  v1::GenerateResponse message;
  ASSERT_TRUE(messages.next(message));
  ASSERT_EQ(message.values().runs_size(), 2);
  EXPECT_EQ(message.values().runs(0).values_size(), 2);
  EXPECT_EQ(message.values().runs(1).position(), 9);
  EXPECT_FALSE(messages.next(message));
}

TEST(TotalOf, CountsBitsPerValue) {
  const v1::ScoreTotal total = total_of(4, -4 * std::log(2.0) * 3, "n");
  EXPECT_NEAR(total.bits_per_dim(), 3.0, 1e-12);
  EXPECT_EQ(total.values(), 4);
  EXPECT_EQ(total.numerics(), "n");
  EXPECT_EQ(total_of(0, 0, "n").bits_per_dim(), 0.0);
}

TEST(SessionMessage, SaysWhatIsKnown) {
  const SessionInfo info{.key = {"", "a"},
                         .state = SessionState::kGenerating,
                         .position = 7,
                         .idle = std::chrono::milliseconds(1500)};
  const v1::Session message = session_message(info, {"m"}, 99);
  EXPECT_EQ(message.id(), "a");
  EXPECT_EQ(message.model(), "m");
  EXPECT_EQ(message.position(), 7);
  EXPECT_EQ(message.state(), v1::Session::GENERATING);
  EXPECT_EQ(message.state_bytes(), 99);
  EXPECT_EQ(message.idle().seconds(), 1);
  EXPECT_EQ(message.idle().nanos(), 500'000'000);
}

}  // namespace
}  // namespace runnel
