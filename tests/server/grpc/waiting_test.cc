// Calls that wait for a state, over a real channel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::GenerateRequest waiting_request(int64_t values = 5,
                                    int64_t ms = std::chrono::milliseconds(kPatience).count()) {
  v1::GenerateRequest request = generate_request({3, 1, 4}, values);
  request.mutable_max_queue_time()->set_seconds(ms / 1000);
  request.mutable_max_queue_time()->set_nanos(static_cast<int32_t>(ms % 1000 * 1'000'000));
  return request;
}

// A client's call, whose events a test reads one by one.
class Stream {
 public:
  Stream(TestServer& test, const v1::GenerateRequest& request)
      : reader_(test.inference->Generate(&context_, request)) {}

  // The next event. Fails the test if the stream has ended.
  v1::GenerateResponse read() {
    v1::GenerateResponse response;
    EXPECT_TRUE(reader_->Read(&response));
    out.take(response);
    return response;
  }
  void cancel() { context_.TryCancel(); }
  grpc::Status finish() {
    for (v1::GenerateResponse response; reader_->Read(&response);) out.take(response);
    return reader_->Finish();
  }
  std::string pushback() const { return trailing_of(context_, "grpc-retry-pushback-ms"); }

  Generated out;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
};

// A server with one state, and a call that holds it.
class WaitingTest : public testing::Test {
 protected:
  WaitingTest()
      : test_(served_fake("fake", slowly, {}, {.slots = 1, .rows = 8, .values = 32, .steps = 1})),
        running_(test_, generate_request({1}, 1 << 20)) {
    EXPECT_TRUE(running_.read().has_started());
  }
  ~WaitingTest() override {
    running_.cancel();
    (void)running_.finish();
  }

  TestServer test_;
  Stream running_;
};

TEST_F(WaitingTest, ACallIsToldItsPlaceAndThenStarts) {
  Stream first(test_, waiting_request());
  EXPECT_EQ(first.read().queued().place(), 1);
  Stream second(test_, waiting_request());
  EXPECT_EQ(second.read().queued().place(), 2);
  running_.cancel();
  for (Stream* stream : {&first, &second}) {
    const grpc::Status status = stream->finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(stream->out.order.front(), "started");
    EXPECT_EQ(stream->out.values.at(0), FakeModel::expected(fake_spec(), {3, 1, 4}, 1, 0, 5));
  }
}

TEST_F(WaitingTest, ACancelledCallMakesRoomForLaterCalls) {
  Stream first(test_, waiting_request());
  EXPECT_EQ(first.read().queued().place(), 1);
  Stream second(test_, waiting_request());
  EXPECT_EQ(second.read().queued().place(), 2);
  first.cancel();
  EXPECT_EQ(first.finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(second.read().queued().place(), 1);
}

TEST_F(WaitingTest, ATimeoutSaysWhenToTryAgain) {
  Stream stream(test_, waiting_request(5, 50));
  EXPECT_EQ(stream.read().queued().place(), 1);
  const grpc::Status status = stream.finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("0 of 1 sessions are free"));
  EXPECT_EQ(stream.pushback(), "1000");
  EXPECT_THAT(stream.out.places, ElementsAre(1));
  EXPECT_THAT(test_.log_text.str(), HasSubstr("code=RESOURCE_EXHAUSTED"));
}

TEST_F(WaitingTest, ADrainEndsWaitingCallsButNotRunningOnes) {
  Stream stream(test_, waiting_request());
  EXPECT_TRUE(stream.read().has_queued());
  std::thread drainer([&] { test_.server.drain(kPatience); });
  const grpc::Status status = stream.finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("the server is draining"));
  EXPECT_TRUE(running_.read().has_values());
  running_.cancel();
  drainer.join();
}

// The time is that of --queue-time-ms. The default, 0, refuses at once.
TEST_F(WaitingTest, ACallWithoutAQueueTimeUsesThatOfTheServer) {
  const v1::GenerateRequest silent = generate_request({3, 1, 4}, 5);
  EXPECT_EQ(Stream(test_, silent).finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  test_.server.context().queue_time = std::chrono::minutes(5);
  Stream waits(test_, silent);
  EXPECT_EQ(waits.read().queued().place(), 1);
  v1::GenerateRequest at_once = silent;
  at_once.mutable_max_queue_time()->set_seconds(0);
  EXPECT_EQ(Stream(test_, at_once).finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  running_.cancel();
  EXPECT_TRUE(waits.finish().ok());
}

TEST_F(WaitingTest, AScoreCallWaitsAsWell) {
  grpc::ClientContext context;
  const auto scoring = test_.inference->Score(&context);
  v1::ScoreRequest request = score_request({1, 2, 3});
  request.mutable_max_queue_time()->set_seconds(600);
  ASSERT_TRUE(scoring->Write(request));
  ASSERT_TRUE(eventually([&] {
    Stream behind(test_, waiting_request());
    const int place = behind.read().queued().place();
    behind.cancel();
    (void)behind.finish();
    return place == 2;
  }));
  running_.cancel();
  v1::ScoreResponse response;
  ASSERT_TRUE(scoring->Read(&response));
  EXPECT_EQ(response.chunk().log_probs_size(), 2);
  ASSERT_TRUE(scoring->WritesDone());
  while (scoring->Read(&response)) {
  }
  EXPECT_TRUE(scoring->Finish().ok());
}

TEST_F(WaitingTest, InvalidWaitTimesAreRefused) {
  for (const int64_t ms : {int64_t{-1}, int64_t{3'600'001}}) {
    v1::GenerateRequest request = waiting_request(5, ms);
    const grpc::Status status = test_.generate(request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("max_queue_time"));
    v1::ScoreRequest score = score_request({1, 2});
    *score.mutable_max_queue_time() = request.max_queue_time();
    EXPECT_EQ(test_.score(std::vector<v1::ScoreRequest>{score}).status.error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace runnel
