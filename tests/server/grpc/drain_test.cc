// Draining: running calls get a grace period, then end with UNAVAILABLE, and nothing hangs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <utility>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using Clock_ = std::chrono::steady_clock;

void slowly() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// A model that waits for `go` in its hundredth step.
ServedModel waiting_for(std::latch& go) {
  return served_fake("fake", [&go, steps = 0]() mutable {
    if (++steps == 100) go.wait();
  });
}

TEST(Drain, RunningCallsGetTheGraceAndNewCallsAreRefused) {
  std::latch go(1);
  TestServer test(waiting_for(go));
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, generate_request({1}, 400, 3));
  Generated out;
  v1::GenerateResponse response;
  EXPECT_TRUE(reader->Read(&response));
  out.take(response);
  std::thread drainer([&] { test.server.drain(kCallPatience); });
  EXPECT_TRUE(eventually([&] { return !test.server.serving(); }));
  // The engine learns of the drain last. A call before that waits for the step until its deadline.
  Generated refused;
  EXPECT_TRUE(eventually([&] {
    refused = test.generate(generate_request({1}, 1), std::chrono::seconds(1));
    return refused.status.error_code() == grpc::StatusCode::UNAVAILABLE;
  }));
  EXPECT_THAT(refused.status.error_message(), HasSubstr("the server is draining"));
  EXPECT_EQ(test.score(std::vector<int32_t>{1, 2}).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(test.create("a").error_code(), grpc::StatusCode::UNAVAILABLE);
  go.count_down();
  while (reader->Read(&response)) out.take(response);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(out.values.at(0), FakeModel::expected(fake_spec(), {1}, 3, 0, 400));
  drainer.join();
  EXPECT_THAT(test.log_text.str(), HasSubstr("info drain streams="));
}

TEST(Drain, AScoreCallThatHasNotBegunIsRefusedAtOnce) {
  TestServer test(served_fake("fake", slowly));
  grpc::ClientContext context;  // of a call that delays the drain until it is cancelled
  const auto reader = test.inference->Generate(&context, generate_request({1}, 1 << 20));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  std::thread drainer([&] { test.server.drain(kCallPatience); });
  EXPECT_TRUE(eventually([&] {
    return test.generate(generate_request({1}, 1)).status.error_code() ==
           grpc::StatusCode::UNAVAILABLE;
  }));
  grpc::ClientContext idle_context;
  const auto idle = test.inference->Score(&idle_context);
  v1::ScoreResponse scored;
  EXPECT_FALSE(idle->Read(&scored));  // nothing was sent, so the server does not wait for the call
  const grpc::Status status = idle->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("the server is draining"));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  drainer.join();
}

TEST(Drain, HealthSaysNotServingAtOnce) {
  std::latch go(1);
  TestServer test(waiting_for(go));
  grpc::ClientContext watching;
  const auto watch = test.health->Watch(&watching, {});
  grpc::health::v1::HealthCheckResponse health;
  ASSERT_TRUE(watch->Read(&health));
  EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, generate_request({1}, 300));
  v1::GenerateResponse response;
  EXPECT_TRUE(reader->Read(&response));
  std::thread drainer([&] { test.server.drain(kCallPatience); });
  EXPECT_TRUE(watch->Read(&health));
  EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  go.count_down();
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  drainer.join();
  (void)watch->Finish();
}

TEST(Drain, CallsThatOutlastTheGraceEndWithUnavailable) {
  TestServer test(served_fake("fake", slowly));
  grpc::ClientContext generate_context;
  const auto reader = test.inference->Generate(&generate_context, generate_request({1}, 1 << 20));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  // One call scores and waits for its client, and one has not begun.
  grpc::ClientContext score_context;
  const auto scoring = test.inference->Score(&score_context);
  ASSERT_TRUE(scoring->Write(score_request({1, 2, 3})));
  v1::ScoreResponse scored;
  ASSERT_TRUE(scoring->Read(&scored));
  grpc::ClientContext idle_context;
  const auto idle = test.inference->Score(&idle_context);
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 3; }));

  const auto began = Clock_::now();
  std::thread drainer([&] { test.server.drain(std::chrono::milliseconds(100)); });
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(scoring->Read(&scored));
  EXPECT_FALSE(idle->Read(&scored));
  for (const grpc::Status& status : {reader->Finish(), scoring->Finish(), idle->Finish()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("the server is shutting down"));
  }
  drainer.join();
  EXPECT_LT(Clock_::now() - began, std::chrono::minutes(10));
}

TEST(Drain, SessionsCanBeReadAndSavedButNotCreated) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  ASSERT_TRUE(test.create("a").ok());
  v1::GenerateRequest fed = generate_request({1, 2, 3}, 0);
  fed.mutable_origin()->set_session("a");
  ASSERT_TRUE(test.generate(fed).status.ok());
  grpc::ClientContext context;  // of a call that the drain waits for
  const auto scoring = test.inference->Score(&context);
  ASSERT_TRUE(scoring->Write(score_request({1, 2, 3})));
  v1::ScoreResponse scored;
  ASSERT_TRUE(scoring->Read(&scored));
  std::thread drainer([&] { test.server.drain(kCallPatience); });
  EXPECT_TRUE(eventually([&] {
    return test.generate(generate_request({1}, 1)).status.error_code() ==
           grpc::StatusCode::UNAVAILABLE;
  }));

  v1::Session session;
  EXPECT_TRUE(test.get("a", &session).ok());
  EXPECT_EQ(session.position(), 3);
  grpc::ClientContext exporting;
  v1::ExportSessionRequest request;
  request.set_id("a");
  const auto reader = test.sessions->ExportSession(&exporting, request);
  std::string file;
  for (v1::ExportSessionResponse piece; reader->Read(&piece);) file += piece.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(file.substr(0, 8), "RNLSTATE");
  grpc::ClientContext importing;
  const auto writer = test.sessions->ImportSession(&importing, &session);
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);

  scoring->WritesDone();
  while (scoring->Read(&scored)) {
  }
  EXPECT_TRUE(scoring->Finish().ok());
  drainer.join();
}

TEST(Drain, AnUnreadyServerStillServesCalls) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  test.server.unready();
  EXPECT_FALSE(test.server.serving());
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse health;
  ASSERT_TRUE(test.health->Check(&context, {}, &health).ok());
  EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_TRUE(test.create("a").ok());
  EXPECT_TRUE(test.generate(generate_request({1}, 3)).status.ok());
}

TEST(Drain, AReaderWhoNeverReadsDoesNotDelayTheDrain) {
  EngineOptions options;
  options.stream_room = 64;
  TestServer test(served_fake("fake", {}, options));
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, generate_request({1}, 1 << 20));
  // Waits until two checks find the same number of sampled values: the reader's buffers are full.
  int64_t last = 0;
  ASSERT_TRUE(eventually([&] {
    const int64_t now = (*test.server.models().find({}, ""))->engine->stats().values_sampled;
    return std::exchange(last, now) == now && now > 64;
  }));
  const auto began = Clock_::now();
  test.server.drain(std::chrono::milliseconds(50));
  EXPECT_LT(Clock_::now() - began, std::chrono::minutes(10));
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(Drain, InTheMiddleOfAStormEveryCallGetsAStatus) {
  for (int round = 0; round < 3; ++round) {
    TestServer test(served_bundle(small_symbol_spec(), 1));
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) {
          const grpc::Status status = t % 2 == 0 ? test.generate(generate_request({1}, 20)).status
                                                 : test.score(std::vector<int32_t>{1, 2, 3}).status;
          if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return;
          // At the moment of the shutdown, the library itself answers.
          if (status.error_code() == grpc::StatusCode::CANCELLED) return;
          EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED)
              << status.error_code() << status.error_message();
          ++ended;
        }
      });
    }
    EXPECT_TRUE(eventually([&] { return ended >= 50 * round; }));
    test.server.drain(std::chrono::milliseconds(30));
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Drain, TheSecondDrainChangesNothing) {
  TestServer test(served_fake("fake"));
  test.server.drain(Duration(0));
  const auto start = std::chrono::steady_clock::now();
  test.server.drain(std::chrono::seconds(100));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50))
      << "the second drain waited";
}

}  // namespace
}  // namespace runnel
