// Score calls, tested on Engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/engine/harness.h"

namespace runnel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ScoreTest : public testing::Test {
 protected:
  Result<ScoredChunk> score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values) {
    std::optional<Result<ScoredChunk>> result;
    const Status status = harness_.engine->score(
        call, std::move(values), [&](Result<ScoredChunk> r) { result = std::move(r); });
    if (!status.ok()) return status;
    harness_.run();
    return *result;
  }

  Harness harness_;
};

TEST_F(ScoreTest, EveryValueExceptTheFirstIsScoredInChunksOfAnySize) {
  std::vector<int32_t> values(50);
  for (int i = 0; i < 50; ++i) values[i] = i * 13 % 100;
  for (const size_t chunk : {1, 2, 7, 50}) {
    const auto call = *harness_.engine->start_score({}, {});
    std::vector<float> log_probs;
    for (size_t at = 0; at < values.size(); at += chunk) {
      const size_t end = std::min(values.size(), at + chunk);
      const auto scored = score(call, {values.begin() + at, values.begin() + end});
      ASSERT_TRUE(scored.ok()) << scored.status().to_string();
      EXPECT_EQ(scored->position, static_cast<int64_t>(std::max<size_t>(at, 1)));
      log_probs.insert(log_probs.end(), scored->log_probs.begin(), scored->log_probs.end());
    }
    ASSERT_EQ(log_probs.size(), 49U);
    for (size_t i = 1; i < 50; ++i) {
      EXPECT_EQ(log_probs[i - 1], FakeModel::expected_log_prob(values, i));
    }
    harness_.engine->end_score(call);
    harness_.run();
    EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
  }
}

TEST_F(ScoreTest, TheMostLikelyValuesAreReturnedOnRequest) {
  const auto call = *harness_.engine->start_score({}, {}, false, false, Duration(0), 2);
  const auto scored = score(call, {1, 2, 3});
  ASSERT_TRUE(scored.ok()) << scored.status().to_string();
  ASSERT_EQ(scored->log_probs.size(), 2U);
  EXPECT_EQ(scored->top_log_probs, 2);
  ASSERT_EQ(scored->top.size(), 4U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_GE(scored->top[2 * i].log_prob, scored->top[2 * i + 1].log_prob);
    EXPECT_GE(scored->top[2 * i].log_prob, scored->log_probs[i]);
  }
  EXPECT_EQ(harness_.engine->start_score({}, {}, false, false, Duration(0), 21).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ScoreTest, ASessionContinuesAfterTheValuesThatItKeeps) {
  ASSERT_TRUE(harness_.create("a").ok());
  const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}}, false, true);
  EXPECT_EQ(score(call, {1, 2})->log_probs.size(), 1U);
  const auto scored = score(call, {3, 4});
  EXPECT_THAT(scored->log_probs, ElementsAre(FakeModel::expected_log_prob({1, 2, 3}, 2),
                                             FakeModel::expected_log_prob({1, 2, 3, 4}, 3)));
  EXPECT_EQ(harness_.get("a")->state, SessionPhase::kPrompting);
  EXPECT_EQ(harness_.engine->stats().sessions_free, 7) << "it needs no state beside the session's";
  harness_.engine->end_score(call);
  harness_.run();
  EXPECT_EQ(harness_.get("a")->position, 4);
  GenerateRequest request = request_of({}, 10);
  request.session = "a";
  const auto reader = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(reader->values[0], FakeModel::expected(fake_spec(), {1, 2, 3, 4}, 1, 0, 10));
  EXPECT_EQ(harness_.engine->start_score({}, {}, false, true).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ScoreTest, ValuesAreKeptOnlyAtTheExpectedPosition) {
  ASSERT_TRUE(harness_.create("a").ok());
  const auto call_at = [&](int64_t position) {
    const Origin origin = {.session = "a", .state = {}, .expected_position = position};
    return *harness_.engine->start_score({}, origin, false, true);
  };
  const auto call = call_at(0);
  ASSERT_TRUE(score(call, {1, 2}).ok());
  harness_.engine->end_score(call);
  harness_.run();
  const Status refused = score(call_at(0), {1, 2}).status();
  EXPECT_EQ(refused.code(), Code::kAborted);
  EXPECT_THAT(refused.message(), HasSubstr("is at position 2, not at expected_position 0"));
  EXPECT_EQ(harness_.get("a")->position, 2);
  EXPECT_TRUE(score(call_at(2), {1, 2}).ok());
}

TEST_F(ScoreTest, ACallInASessionThatIsDeletedEnds) {
  ASSERT_TRUE(harness_.create("a").ok());
  const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}}, false, true);
  ASSERT_TRUE(score(call, {1, 2}).ok());
  EXPECT_TRUE(harness_.remove("a").ok());
  EXPECT_EQ(score(call, {3}).status(), Status(Code::kAborted, "session 'a' was deleted"));
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
}

// The retry would send the results of the session's last call, but not the values read since.
TEST_F(ScoreTest, ARetryDoesNotContinueAfterKeptValues) {
  ASSERT_TRUE(harness_.create("a").ok());
  GenerateRequest request = request_of({1, 2}, 5);
  request.session = "a";
  request.request_id = "r";
  request.expected_position = 0;
  harness_.generate(request);
  harness_.run();
  const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}}, false, true);
  ASSERT_TRUE(score(call, {3}).ok());
  harness_.engine->end_score(call);
  harness_.run();
  const auto retry = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(retry->end->code(), Code::kAborted);
  EXPECT_EQ(harness_.get("a")->position, 8);
}

TEST_F(ScoreTest, ScoringFromASessionDoesNotChangeIt) {
  GenerateRequest request = request_of({1, 2, 3}, 0);
  ASSERT_TRUE(harness_.create("a").ok());
  request.session = "a";
  harness_.generate(request);
  harness_.run();
  const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}});
  const auto scored = score(call, {4, 5});
  ASSERT_TRUE(scored.ok());
  EXPECT_EQ(scored->position, 3);
  EXPECT_EQ(scored->log_probs, (std::vector{FakeModel::expected_log_prob({1, 2, 3, 4, 5}, 3),
                                            FakeModel::expected_log_prob({1, 2, 3, 4, 5}, 4)}));
  EXPECT_EQ(harness_.get("a")->position, 3);
}

TEST_F(ScoreTest, CallsFromASessionKeepItAlive) {
  ASSERT_TRUE(harness_.create("a").ok());
  for (int i = 0; i < 4; ++i) {
    harness_.clock.advance(std::chrono::minutes(40));
    const auto call = *harness_.engine->start_score({}, {.session = "a", .state = {}});
    ASSERT_TRUE(score(call, {4, 5}).ok());
    harness_.engine->end_score(call);
    EXPECT_EQ(harness_.get("a")->idle, Duration(0));
    EXPECT_EQ(harness_.get("a")->state, SessionPhase::kNew);
  }
}

TEST_F(ScoreTest, InvalidCallsAreRefused) {
  auto call = *harness_.engine->start_score({}, {.session = "nobody", .state = {}});
  EXPECT_EQ(score(call, {1}).status().code(), Code::kNotFound);
  call = *harness_.engine->start_score({}, {});
  EXPECT_EQ(score(call, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(score(call, {100}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(harness_.engine->start_score({}, {.session = "a b", .state = {}}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(harness_.engine->start_score({}, {.session = "a", .state = "b"}).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ScoreTest, CancelledWhileAChunkWaitsItStillEndsOnce) {
  const auto call = *harness_.engine->start_score({}, {});
  int ends = 0;
  ASSERT_TRUE(harness_.engine
                  ->score(call, std::vector<int32_t>(100, 1),
                          [&](Result<ScoredChunk> r) {
                            ++ends;
                            EXPECT_EQ(r.status().code(), Code::kCancelled);
                          })
                  .ok());
  harness_.turn();
  harness_.engine->end_score(call);
  harness_.run();
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
}

// A full mailbox does not end a call that was admitted.
TEST_F(ScoreTest, AnAdmittedCallContinuesWhenTheMailboxIsFull) {
  EngineOptions options;
  options.mailbox = 1;
  Harness harness(fake_spec(), Harness::default_limits(), options);
  const auto call = *harness.engine->start_score({}, {});
  int answers = 0;
  const auto give = [&] {
    return harness.engine->score(call, {1, 2}, [&](const Result<ScoredChunk>& scored) {
      EXPECT_TRUE(scored.ok());
      ++answers;
    });
  };
  ASSERT_TRUE(give().ok());
  harness.run();
  harness.generate(request_of({1}, 1));
  EXPECT_EQ(harness.generate(request_of({1}, 1))->end->code(), Code::kResourceExhausted);
  const Status given = give();
  EXPECT_TRUE(given.ok()) << given.to_string();
  const auto other = *harness.engine->start_score({}, {});
  EXPECT_EQ(harness.engine->score(other, {1}, [](const Result<ScoredChunk>&) {}).code(),
            Code::kResourceExhausted);
  harness.run();
  EXPECT_EQ(answers, 2);
}

// A client that sends a message now and then must not hold a slot forever.
TEST_F(ScoreTest, ACallThatMostlyWaitsEndsAfterTheIdleTimeout) {
  const auto call = *harness_.engine->start_score({}, {});
  Duration waited{0};
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    status = score(call, {1}).status();
    harness_.clock.advance(std::chrono::seconds(29));
    if (status.ok()) waited += std::chrono::seconds(29);
    harness_.turn();
  }
  EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
  EXPECT_GE(waited, EngineOptions().idle_timeout);
  EXPECT_LE(waited, EngineOptions().idle_timeout + std::chrono::seconds(29));
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
}

// A reader thread may submit a chunk while the end of the call is in the mailbox.
TEST_F(ScoreTest, AChunkThatComesAfterTheEndIsAnsweredAndTouchesNoSlot) {
  const auto call = *harness_.engine->start_score({}, {});
  ASSERT_TRUE(score(call, {1, 2, 3}).ok());
  harness_.engine->end_score(call);
  harness_.run();
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
  EXPECT_EQ(score(call, {4, 5}).status().code(), Code::kCancelled);
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
}

TEST_F(ScoreTest, DrainingLetsRunningCallsContinue) {
  const auto running = *harness_.engine->start_score({}, {});
  const auto unbegun = *harness_.engine->start_score({}, {});
  ASSERT_TRUE(score(running, {1, 2}).ok());
  harness_.engine->drain();
  EXPECT_TRUE(score(running, {3}).ok());
  EXPECT_EQ(score(unbegun, {1, 2}).status().code(), Code::kUnavailable);
  harness_.engine->end_all({Code::kUnavailable, "over"});
  harness_.run();
  EXPECT_EQ(score(running, {4}).status().code(), Code::kUnavailable);
}

// A call that starts after another has ended finds its slot free, even within one turn.
TEST_F(ScoreTest, ACallThatStartsAfterAnotherEndsGetsItsSlot) {
  Harness harness(fake_spec(), {.slots = 1, .rows = 1, .values = 4, .steps = 1});
  const auto begin = [&](std::optional<Status>& outcome) {
    auto call = *harness.engine->start_score({}, {});
    const Status put = harness.engine->score(
        call, {1, 2}, [&](const Result<ScoredChunk>& scored) { outcome = scored.status(); });
    EXPECT_TRUE(put.ok());
    return call;
  };
  std::optional<Status> first;
  std::optional<Status> second;
  const auto call = begin(first);
  harness.run();
  ASSERT_TRUE(first && first->ok());
  harness.engine->end_score(call);
  begin(second);
  harness.run();
  EXPECT_TRUE(second && second->ok());
}

// While a call waits for a slot, it holds its values and the room for its answers.
TEST_F(ScoreTest, BothValuesAndAnswersCountAgainstTheBytesOfTheQueue) {
  EngineOptions options;
  options.queue_bytes = 1000;
  Harness harness(fake_spec(), {.slots = 1, .rows = 1, .values = 4, .steps = 1}, options);
  harness.generate(request_of({1}, 1 << 18));  // holds the slot
  harness.turn();
  std::shared_ptr<ScoreCall> calls[2];
  std::optional<Status> ends[2];
  for (int i = 0; i < 2; ++i) {
    calls[i] = *harness.engine->start_score({}, {}, false, false, std::chrono::seconds(1));
    // 480 bytes of values, and at least as many for their log-probabilities.
    const Status put =
        harness.engine->score(calls[i], std::vector<int32_t>(120, 2),
                              [&ends, i](const auto& scored) { ends[i] = scored.status(); });
    ASSERT_TRUE(put.ok());
  }
  harness.turn();
  EXPECT_EQ(harness.engine->stats().waiting, 1);
  EXPECT_FALSE(ends[0].has_value());
  ASSERT_TRUE(ends[1].has_value());
  EXPECT_THAT(ends[1]->message(), HasSubstr("limits.queue_bytes"));
  harness.engine->end_score(calls[0]);
  harness.turn();
  EXPECT_EQ(ends[0]->code(), Code::kCancelled);
}

}  // namespace
}  // namespace runnel
