// Score over a real channel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> random_values(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> values(count);
  for (int32_t& value : values) value = static_cast<int32_t>(random() % 11);
  return values;
}

TEST(Score, GivesTheLogProbabilitiesOfGenerate) {
  TestServer test(served_bundle(small_image_spec(), 1));
  v1::GenerateRequest request;
  request.mutable_sampling()->set_seed(5);
  const Generated image = test.generate(request);
  const ScoreOutcome scored = test.score(image.values.at(0));
  ASSERT_TRUE(scored.status.ok()) << scored.status.error_message();
  EXPECT_THAT(scored.positions, ElementsAre(1));  // the first is not predicted
  const auto& said = image.log_probs.at(0);
  EXPECT_EQ(scored.log_probs, std::vector<float>(said.begin() + 1, said.end()));
  ASSERT_TRUE(scored.has_total);
  EXPECT_EQ(scored.total.values(), 19);
  double sum = 0;
  for (const float log_prob : scored.log_probs) sum += log_prob;
  EXPECT_DOUBLE_EQ(scored.total.log_prob(), sum);
  EXPECT_DOUBLE_EQ(scored.total.bits_per_dim(), -sum / 19 / std::log(2.0));
  EXPECT_EQ(scored.total.numerics(), image.started.numerics());
  test.expect_free(8);
}

TEST(Score, ChunksDoNotChangeScores) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  const std::vector<int32_t> values = random_values(500, 4);
  const ScoreOutcome whole = test.score(values);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  EXPECT_EQ(whole.log_probs.size(), 499U);
  std::mt19937 random(5);
  for (int round = 0; round < 5; ++round) {
    std::vector<v1::ScoreRequest> chunks;
    for (size_t at = 0; at < values.size();) {
      const size_t count = std::min<size_t>(1 + random() % 60, values.size() - at);
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(at);
      chunks.push_back(score_request({first, first + static_cast<std::ptrdiff_t>(count)}));
      at += count;
    }
    const ScoreOutcome scored = test.score(chunks);
    ASSERT_TRUE(scored.status.ok()) << scored.status.error_message();
    EXPECT_EQ(scored.log_probs, whole.log_probs);
    EXPECT_EQ(scored.positions.size(), chunks.size()) << "every chunk is answered";
    EXPECT_DOUBLE_EQ(scored.total.log_prob(), whole.total.log_prob());
  }
}

TEST(Score, ASingleFirstValueHasNothingToScore) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  const ScoreOutcome scored = test.score(std::vector<int32_t>{3});
  ASSERT_TRUE(scored.status.ok()) << scored.status.error_message();
  EXPECT_TRUE(scored.log_probs.empty());
  EXPECT_EQ(scored.positions.size(), 1U);
  EXPECT_EQ(scored.total.values(), 0);
  EXPECT_EQ(scored.total.bits_per_dim(), 0.0);
}

TEST(Score, StartsFromASessionAndLeavesItAsItWas) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  const std::vector<int32_t> values = random_values(100, 6);
  const ScoreOutcome whole = test.score(values);
  ASSERT_TRUE(test.create("s").ok());
  v1::GenerateRequest feed = generate_request({values.begin(), values.begin() + 40}, 0);
  feed.mutable_origin()->set_session("s");
  ASSERT_TRUE(test.generate(feed).status.ok());
  for (int round = 0; round < 2; ++round) {
    v1::ScoreRequest request = score_request({values.begin() + 40, values.end()});
    request.mutable_origin()->set_session("s");
    const ScoreOutcome rest = test.score(std::vector{request});
    ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
    EXPECT_THAT(rest.positions, ElementsAre(40));
    EXPECT_EQ(rest.log_probs,
              std::vector<float>(whole.log_probs.begin() + 39, whole.log_probs.end()));
    v1::Session session;
    ASSERT_TRUE(test.get("s", &session).ok());
    EXPECT_EQ(session.position(), 40);
  }
}

TEST(Score, ChecksThePositionThatItsCallerExpects) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  ASSERT_TRUE(test.create("s").ok());
  v1::ScoreRequest request = score_request({1, 2});
  request.mutable_origin()->set_session("s");
  request.set_keep(true);
  request.set_expected_position(0);
  EXPECT_TRUE(test.score(std::vector{request}).status.ok());
  EXPECT_EQ(test.score(std::vector{request}).status.error_code(), grpc::StatusCode::ABORTED);
  request.set_expected_position(2);
  EXPECT_TRUE(test.score(std::vector{request}).status.ok());
  v1::ScoreRequest again = score_request({1});
  again.set_expected_position(0);
  EXPECT_EQ(test.score(std::vector{score_request({1}), again}).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(Score, TheAnswerToALongChunkIsSplitIntoMessagesOfAllowedSize) {
  EngineOptions options;
  ServerOptions server;
  server.grpc.message_bytes = 4 << 20;
  TestServer test(
      served_fake("fake", {}, options, {.slots = 2, .rows = 2, .values = 65536, .steps = 1}),
      server);
  const int count = 1 << 19;
  std::vector<int32_t> values(count);
  for (int i = 0; i < count; ++i) values[i] = i % 97;
  const ScoreOutcome scored = test.score(values);
  ASSERT_TRUE(scored.status.ok()) << scored.status.error_message();
  EXPECT_EQ(scored.log_probs.size(), static_cast<size_t>(count) - 1);
  EXPECT_GE(scored.positions.size(), 2U);
  for (size_t i = 1; i < scored.positions.size(); ++i) {
    EXPECT_EQ(scored.positions[i] - scored.positions[i - 1], 1 << 18);
  }
  EXPECT_EQ(scored.total.values(), count - 1);
}

TEST(Score, OnlyTheFirstMessageNamesModelAndOrigin) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  v1::ScoreRequest named = score_request({1, 2});
  named.set_model("small-symbols");
  EXPECT_TRUE(test.score(std::vector{named, named}).status.ok());
  v1::ScoreRequest other = score_request({1});
  other.set_model("x");
  EXPECT_THAT(test.score(std::vector{named, other}).status.error_message(),
              HasSubstr("model changes within the call"));
  v1::ScoreRequest origin = score_request({1});
  origin.mutable_origin();
  EXPECT_THAT(test.score(std::vector{named, origin}).status.error_message(),
              HasSubstr("origin is set again"));
  test.expect_free(8);
}

TEST(Score, InvalidChunksAreRefused) {
  TestServer test(served_bundle(small_image_spec(), 1));
  EXPECT_THAT(test.score(std::vector<v1::ScoreRequest>{}).status.error_message(),
              HasSubstr("the call has no message"));
  EXPECT_THAT(test.score(std::vector<int32_t>{}).status.error_message(),
              HasSubstr("values is empty"));
  EXPECT_EQ(test.score(std::vector<int32_t>{0, 256}).status.error_message(),
            "values[1] is 256; values of model 'small-image' are 0 to 255");
  EXPECT_EQ(test.score(std::vector<int32_t>(21, 0)).status.error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
  v1::ScoreRequest text;
  text.set_text("abc");
  EXPECT_THAT(test.score(std::vector{text}).status.error_message(), HasSubstr("no tokenizer"));
  v1::ScoreRequest session = score_request({1});
  session.mutable_origin()->set_session("none");
  EXPECT_EQ(test.score(std::vector{session}).status.error_code(), grpc::StatusCode::NOT_FOUND);
  test.expect_free(8);
}

TEST(Score, AFaultAfterGoodChunksEndsTheCallAndFreesItsState) {
  TestServer test(served_bundle(small_image_spec(), 1));
  const ScoreOutcome out =
      test.score(std::vector{score_request({0, 1, 2}), score_request({3, -1})});
  EXPECT_EQ(out.log_probs.size(), 2U);
  EXPECT_FALSE(out.has_total);
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  test.expect_free(8);
}

TEST(Score, CancellingFreesTheState) {
  TestServer test(served_fake("fake", slowly));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    const auto stream = test.inference->Score(&context);
    for (int j = 0; j < i % 3; ++j) {
      stream->Write(score_request(std::vector<int32_t>(50, j)));
    }
    v1::ScoreResponse response;
    if (i % 2 == 0 && i % 3 > 0) {
      EXPECT_TRUE(stream->Read(&response));
    }
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  test.expect_free(8);
  EXPECT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
}

TEST(Score, ACallThatSendsNoMoreIsAborted) {
  ServerOptions options;
  options.host.stall_timeout = std::chrono::milliseconds(150);
  TestServer test(served_fake("fake"), options);
  grpc::ClientContext context;
  const auto stream = test.inference->Score(&context);
  ASSERT_TRUE(stream->Write(score_request({1, 2, 3})));
  v1::ScoreResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(eventually([&] {
    test.server.tend();
    return test.server.active_streams() == 0;
  }));
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("no chunk came for too long"));
  test.expect_free(8);
}

TEST(Score, ACallThatReadsNoAnswersIsCutOff) {
  ServerOptions options;
  options.host.stall_timeout = std::chrono::milliseconds(100);
  options.grpc.message_bytes = 4 << 20;
  EngineOptions engine;
  TestServer test(
      served_fake("fake", {}, engine, {.slots = 2, .rows = 2, .values = 65536, .steps = 1}),
      options);
  grpc::ClientContext context;
  const auto stream = test.inference->Score(&context);
  // The answer has 4 MiB in messages of 1 MiB, more than a connection buffers without a reader.
  ASSERT_TRUE(stream->Write(score_request(std::vector<int32_t>(1 << 20, 1))));
  ASSERT_TRUE(eventually([&] { return test.sessions_free() == 1; }));
  EXPECT_TRUE(eventually([&] {
    test.server.tend();
    return test.sessions_free() == 2 && test.server.active_streams() == 0;
  }));
  v1::ScoreResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

}  // namespace
}  // namespace runnel
