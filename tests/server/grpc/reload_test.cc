// Models are added, replaced and retired while streams run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

v1::GenerateRequest request_to(const std::string& model, int64_t max_values, uint64_t seed = 3) {
  v1::GenerateRequest request = generate_request({1}, max_values, seed);
  request.set_model(model);
  return request;
}

TEST(Reload, AnAddedModelIsServedAtOnce) {
  TestServer test(served_fake("first"));
  EXPECT_EQ(test.generate(request_to("second", 5)).status.error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(test.server.models().add(served_fake("second")).ok());
  EXPECT_TRUE(test.generate(request_to("second", 5)).status.ok());
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  EXPECT_TRUE(test.models->ListModels(&context, {}, &models).ok());
  EXPECT_EQ(models.models_size(), 2);
}

TEST(Reload, StreamsOfARetiredModelRunToTheirEndAndItsMemoryGoes) {
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> model_memory = held;
  TestServer test(served_fake("old", [held = std::move(held)] { slowly(); }));
  EXPECT_TRUE(test.server.models().add(served_fake("new")).ok());
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, request_to("old", 300));
  Generated out;
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  out.take(response);
  grpc::ClientContext score_context;
  const auto scoring = test.inference->Score(&score_context);
  v1::ScoreRequest chunk = score_request({1, 2, 3});
  chunk.set_model("old");
  ASSERT_TRUE(scoring->Write(chunk));
  v1::ScoreResponse scored;
  ASSERT_TRUE(scoring->Read(&scored));

  EXPECT_TRUE(test.server.models().retire("old").ok());
  const Generated refused = test.generate(request_to("old", 5));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(refused.status.error_message(), "no model 'old'; this server has 'new'");
  EXPECT_TRUE(test.generate(request_to("new", 5)).status.ok());

  while (reader->Read(&response)) out.take(response);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(out.values.at(0), FakeModel::expected(fake_spec(), {1}, 3, 0, 300));
  ASSERT_TRUE(scoring->Write(score_request({4})));
  EXPECT_TRUE(scoring->Read(&scored));
  EXPECT_FALSE(model_memory.expired());
  scoring->WritesDone();
  ASSERT_TRUE(scoring->Read(&scored));
  EXPECT_EQ(scored.total().values(), 3);
  EXPECT_FALSE(scoring->Read(&scored));
  EXPECT_TRUE(scoring->Finish().ok());
  EXPECT_TRUE(eventually([&] { return model_memory.expired(); }));
}

TEST(Reload, WeightsAndThreadsOfARetiredModelAreFreed) {
  ServedModel served = served_bundle(small_symbol_spec(), 1);
  const std::weak_ptr<Backend> backend = served.backend;
  TestServer test(std::move(served));
  EXPECT_TRUE(test.generate(generate_request({1}, 20)).status.ok());
  EXPECT_TRUE(test.create("rests").ok());
  EXPECT_TRUE(test.server.models().retire("small-symbols").ok());
  EXPECT_TRUE(eventually([&] { return backend.expired(); }));
  EXPECT_EQ(test.get("rests").error_message(), "no model ''; this server has none");
}

TEST(Reload, AReplacedModelAnswersNewCalls) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  const Generated before = test.generate(generate_request({1}, 50));
  EXPECT_TRUE(test.server.models().replace(served_bundle(small_symbol_spec(), 2)).ok());
  const Generated after = test.generate(generate_request({1}, 50));
  ASSERT_TRUE(before.status.ok() && after.status.ok());
  EXPECT_NE(before.log_probs, after.log_probs);
}

TEST(Reload, DrainingEndsStreamsOfARetiredModel) {
  TestServer test(served_fake("old", slowly));
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, request_to("old", 1 << 20));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(test.server.models().retire("old").ok());
  std::thread drainer([&] { test.server.drain(std::chrono::milliseconds(50)); });
  while (reader->Read(&response)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("the server is shutting down"));
  drainer.join();
}

TEST(Reload, DuringManyReloadsEveryCallIsServedOrToldThatTheModelIsGone) {
  TestServer test(served_fake("stays"));
  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      while (!stop) {
        const Generated out = test.generate(request_to(t == 0 ? "stays" : "comes", 30, t));
        if (out.status.ok()) {
          EXPECT_EQ(out.values.at(0), FakeModel::expected(fake_spec(), {1}, t, 0, 30));
          ++served;
        } else {
          EXPECT_EQ(out.status.error_code(), grpc::StatusCode::NOT_FOUND);
          EXPECT_NE(t, 0);
        }
      }
    });
  }
  std::vector<std::weak_ptr<int>> memory;
  for (int round = 0; round < 30; ++round) {
    auto held = std::make_shared<int>();
    memory.push_back(held);
    EXPECT_TRUE(test.server.models().add(served_fake("comes", [held = std::move(held)] {})).ok());
    const int before = served;
    EXPECT_TRUE(eventually([&] { return served >= before + 3; }));
    EXPECT_TRUE(test.server.models().retire("comes").ok());
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  for (const auto& each : memory) EXPECT_TRUE(eventually([&] { return each.expired(); }));
}

}  // namespace
}  // namespace runnel
