// Generate over a real channel, on small models with random weights.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <semaphore>
#include <thread>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Generate, AnImageHasTheEventsStartedValuesFinished) {
  TestServer test(served_bundle(small_image_spec(), 1));
  v1::GenerateRequest request;
  request.mutable_sampling()->set_seed(5);
  const Generated image = test.generate(request);
  ASSERT_TRUE(image.status.ok()) << image.status.error_message();
  EXPECT_EQ(image.order.front(), "started");
  EXPECT_EQ(image.order.back(), "finished");
  EXPECT_EQ(image.started.seed(), 5U);
  EXPECT_EQ(image.started.position(), 0);
  EXPECT_EQ(image.started.session(), "");
  EXPECT_THAT(image.started.numerics(), HasSubstr("cpu/"));
  ASSERT_EQ(image.values.at(0).size(), 20U);
  EXPECT_EQ(image.first_position.at(0), 0);
  EXPECT_EQ(image.values.at(0)[0], 0);        // the begin value
  EXPECT_EQ(image.log_probs.at(0)[0], 0.0F);  // not predicted, so its log-probability is 0
  const v1::Finished& finished = image.finished.at(0);
  EXPECT_EQ(finished.reason(), v1::Finished::END);
  EXPECT_EQ(finished.usage().prompt_values(), 0);
  EXPECT_EQ(finished.usage().sampled_values(), 20);
  EXPECT_EQ(finished.usage().position(), 20);
  test.expect_free(8);
}

TEST(Generate, TheFirstValueComesAtOnceAndTheRestInGroups) {
  // The model waits in its sixth step, so the client gets the first message before ten values
  // exist.
  std::latch first_has_come(1);
  TestServer test(served_fake("fake", [&, steps = 0]() mutable {
    if (++steps == 6) first_has_come.wait();
  }));
  v1::GenerateRequest request = generate_request({1}, 60);
  request.mutable_delivery()->set_max_values(10);
  request.mutable_delivery()->mutable_max_delay()->set_seconds(60);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto reader = test.inference->Generate(&context, request);
  Generated out;
  v1::GenerateResponse response;
  while (out.message_values.empty() && reader->Read(&response)) out.take(response);
  first_has_come.count_down();
  while (reader->Read(&response)) out.take(response);
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(out.values.at(0).size(), 60U);
  ASSERT_GE(out.message_values.size(), 2U);
  EXPECT_LT(out.message_values[0], 10);
  // A slow reader gets larger messages, but never smaller ones.
  for (size_t i = 1; i + 1 < out.message_values.size(); ++i) {
    EXPECT_GE(out.message_values[i], 10);
  }
}

TEST(Generate, AValueWaitsNoLongerThanAskedFor) {
  // The model is at most three steps ahead of its reader, so no message has more than three values.
  std::counting_semaphore<> steps(3);
  TestServer test(served_fake("fake", [&] { steps.acquire(); }));
  v1::GenerateRequest request = generate_request({1}, 20);
  request.mutable_delivery()->set_max_values(4096);
  request.mutable_delivery()->mutable_max_delay()->set_nanos(1);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto reader = test.inference->Generate(&context, request);
  Generated out;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    out.take(response);
    if (response.has_values()) steps.release(out.message_values.back());
  }
  steps.release(1000);  // releases a call that did not end well
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(out.values.at(0).size(), 20U);
  EXPECT_GE(out.message_values.size(), 5U);
}

TEST(Generate, TheSameSeedGivesTheSameSamplesAndSamplesDiffer) {
  TestServer test(served_bundle(small_symbol_spec(), 2));
  v1::GenerateRequest request = generate_request({3, 4}, 40, 9);
  request.set_samples(4);
  const Generated first = test.generate(request);
  const Generated second = test.generate(request);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.values, second.values);
  EXPECT_EQ(first.log_probs, second.log_probs);
  ASSERT_EQ(first.values.size(), 4U);
  EXPECT_NE(first.values.at(0), first.values.at(1));
  EXPECT_EQ(first.finished.size(), 4U);
  for (const auto& [sample, position] : first.first_position) EXPECT_EQ(position, 2) << sample;
  request.mutable_sampling()->set_seed(10);
  EXPECT_NE(test.generate(request).values, first.values);
  request.set_samples(1);
  request.mutable_sampling()->set_seed(9);
  EXPECT_EQ(test.generate(request).values.at(0), first.values.at(0));
}

TEST(Generate, ARequestIdIsASeed) {
  TestServer test(served_bundle(small_symbol_spec(), 2));
  v1::GenerateRequest request = generate_request({1}, 20);
  request.clear_sampling();
  request.set_request_id("again");
  const Generated first = test.generate(request);
  const Generated second = test.generate(request);
  EXPECT_EQ(first.values, second.values);
  EXPECT_EQ(first.started.seed(), second.started.seed());
  request.clear_request_id();
  EXPECT_NE(test.generate(request).started.seed(), test.generate(request).started.seed());
}

TEST(Generate, AContinuedSessionGivesTheSameValuesAsOneCall) {
  TestServer test(served_bundle(small_symbol_spec(), 3));
  const Generated whole = test.generate(generate_request({1, 2, 3}, 60, 4));
  ASSERT_TRUE(whole.status.ok());

  ASSERT_TRUE(test.create("s").ok());
  v1::GenerateRequest part = generate_request({1, 2, 3}, 25, 4);
  part.mutable_origin()->set_session("s");
  const Generated first = test.generate(part);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.started.session(), "s");
  part = generate_request({}, 35, 4);
  part.mutable_origin()->set_session("s");
  part.set_expected_position(28);
  const Generated second = test.generate(part);
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(second.started.position(), 28);
  EXPECT_EQ(joined(first.values.at(0), second.values.at(0)), whole.values.at(0));
  std::vector<float> log_probs = first.log_probs.at(0);
  log_probs.insert(log_probs.end(), second.log_probs.at(0).begin(), second.log_probs.at(0).end());
  EXPECT_EQ(log_probs, whole.log_probs.at(0));

  v1::Session session;
  ASSERT_TRUE(test.get("s", &session).ok());
  EXPECT_EQ(session.position(), 63);
  EXPECT_EQ(session.state(), v1::Session::IDLE);
}

TEST(Generate, WithKeepACallMakesASessionAndWithoutItLeavesItUnchanged) {
  TestServer test(served_bundle(small_symbol_spec(), 3));
  v1::GenerateRequest request = generate_request({1, 2}, 5, 4);
  request.set_keep(true);
  const Generated kept = test.generate(request);
  ASSERT_TRUE(kept.status.ok()) << kept.status.error_message();
  const std::string name = kept.started.session();
  ASSERT_FALSE(name.empty());
  v1::Session session;
  ASSERT_TRUE(test.get(name, &session).ok());
  EXPECT_EQ(session.position(), 7);
  // Several continuations start from the session. None of them changes it.
  request = generate_request({}, 10, 6);
  request.mutable_origin()->set_session(name);
  request.set_samples(3);
  EXPECT_EQ(test.generate(request).values.size(), 3U);
  request.set_samples(1);
  request.set_keep(false);
  const Generated once = test.generate(request);
  EXPECT_EQ(once.values, test.generate(request).values);
  ASSERT_TRUE(test.get(name, &session).ok());
  EXPECT_EQ(session.position(), 7);
  test.expect_free(7);
}

TEST(Generate, MaxValuesZeroFeedsOnly) {
  TestServer test(served_bundle(small_symbol_spec(), 3));
  ASSERT_TRUE(test.create("s").ok());
  v1::GenerateRequest request = generate_request({1, 2, 3}, 0, 4);
  request.mutable_origin()->set_session("s");
  const Generated fed = test.generate(request);
  ASSERT_TRUE(fed.status.ok()) << fed.status.error_message();
  EXPECT_TRUE(fed.values.empty());
  EXPECT_EQ(fed.finished.at(0).reason(), v1::Finished::LENGTH);
  EXPECT_EQ(fed.finished.at(0).usage().prompt_values(), 3);
  request = generate_request({}, 12, 4);
  request.mutable_origin()->set_session("s");
  EXPECT_EQ(test.generate(request).values.at(0),
            test.generate(generate_request({1, 2, 3}, 12, 4)).values.at(0));
}

TEST(Generate, StopEndsASampleWithTheSequence) {
  TestServer test(served_bundle(small_symbol_spec(), 3));
  const Generated whole = test.generate(generate_request({1}, 50, 8));
  const auto& values = whole.values.at(0);
  v1::GenerateRequest request = generate_request({1}, 50, 8);
  request.add_stop()->mutable_values()->Add(values.begin() + 20, values.begin() + 24);
  const Generated stopped = test.generate(request);
  ASSERT_TRUE(stopped.status.ok());
  EXPECT_EQ(stopped.finished.at(0).reason(), v1::Finished::STOP);
  ASSERT_LE(stopped.values.at(0).size(), 24U);
  EXPECT_TRUE(std::equal(stopped.values.at(0).begin(), stopped.values.at(0).end(), values.begin()));
}

TEST(Generate, TopLogProbsComeWithEachValueMostLikelyFirst) {
  TestServer test(served_bundle(small_symbol_spec(), 3));
  v1::GenerateRequest request = generate_request({1}, 30, 8);
  request.set_top_log_probs(11);
  const Generated out = test.generate(request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  ASSERT_EQ(out.top.at(0).size(), 30U);
  for (size_t i = 0; i < 30; ++i) {
    const auto& top = out.top.at(0)[i].top();
    ASSERT_EQ(top.size(), 11);
    double sum = 0;
    bool found = false;
    for (int j = 0; j < 11; ++j) {
      sum += std::exp(static_cast<double>(top[j].log_prob()));
      if (j > 0) {
        EXPECT_LE(top[j].log_prob(), top[j - 1].log_prob());
      }
      if (top[j].value() != out.values.at(0)[i]) continue;
      found = true;
      EXPECT_NEAR(top[j].log_prob(), out.log_probs.at(0)[i], 1e-5);
    }
    EXPECT_TRUE(found);
    EXPECT_NEAR(sum, 1.0, 1e-4);
  }
}

TEST(Generate, GreedyTakesTheMostLikely) {
  TestServer test(served_bundle(small_symbol_spec(), 3));
  v1::GenerateRequest request = generate_request({1}, 30, 8);
  request.mutable_sampling()->set_greedy(true);
  request.set_top_log_probs(1);
  const Generated out = test.generate(request);
  ASSERT_TRUE(out.status.ok());
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(out.top.at(0)[i].top(0).value(), out.values.at(0)[i]);
  }
}

TEST(Generate, MaxTimeEndsASample) {
  TestServer test(
      served_fake("fake", [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }));
  v1::GenerateRequest request = generate_request({1}, 1 << 20);
  request.mutable_max_time()->set_nanos(100'000'000);
  const Generated out = test.generate(request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.finished.at(0).reason(), v1::Finished::TIME);
  const auto& elapsed = out.finished.at(0).usage().elapsed();
  EXPECT_GE(elapsed.seconds() * 1'000'000'000 + elapsed.nanos(), 100'000'000);
}

TEST(Generate, CancellingFreesTheSlot) {
  // Room for all calls, because a cancelled call may still hold its slot when the next one comes.
  TestServer test(
      served_fake("fake", slowly, {}, {.slots = 256, .rows = 8, .values = 32, .steps = 1}));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::GenerateRequest request = generate_request({1}, 1 << 20);
    request.set_samples(1 + i % 8);
    const auto reader = test.inference->Generate(&context, request);
    v1::GenerateResponse response;
    for (int j = 0; j < i % 4; ++j) EXPECT_TRUE(reader->Read(&response));
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  test.expect_free(256);
}

TEST(Generate, ConcurrentClientsGetTheSameValuesAsAlone) {
  EngineOptions options;
  TestServer test(served_bundle(small_symbol_spec(), 3, options,
                                {.slots = 32, .rows = 16, .values = 64, .steps = 1}));
  std::vector<Generated> alone;
  for (int i = 0; i < 12; ++i) alone.push_back(test.generate(generate_request({i % 11}, 80, i)));
  std::vector<Generated> together(12);
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back(
        [&, i] { together[i] = test.generate(generate_request({i % 11}, 80, i)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(together[i].status.ok()) << together[i].status.error_message();
    EXPECT_EQ(together[i].values, alone[i].values);
    EXPECT_EQ(together[i].log_probs, alone[i].log_probs);
  }
}

TEST(Generate, ASlowReaderLosesNothing) {
  EngineOptions options;
  options.stream_room = 64;
  TestServer test(served_fake("fake", {}, options));
  grpc::ClientContext context;
  v1::GenerateRequest request = generate_request({1}, 60000, 3);
  request.set_top_log_probs(0);
  const auto reader = test.inference->Generate(&context, request);
  Generated out;
  v1::GenerateResponse response;
  int messages = 0;
  while (reader->Read(&response)) {
    out.take(response);
    if (++messages % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(out.values.at(0), FakeModel::expected(fake_spec(), {1}, 3, 0, 60000));
}

// The last logged value of a field, or "" if no line has the field.
std::string logged(const std::string& log, const std::string& field) {
  const size_t at = log.rfind(" " + field + "=");
  if (at == std::string::npos) return "";
  const size_t from = at + field.size() + 2;
  return log.substr(from, log.find_first_of(" \n", from) - from);
}

TEST(Generate, TheLogHasALineForEachCall) {
  TestServer test(served_bundle(small_symbol_spec(), 3));
  v1::GenerateRequest request = generate_request({1}, 3);
  request.set_request_id("find me");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(test.generate(request).status.ok());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_FALSE(test.generate(generate_request({99}, 3)).status.ok());
  request.clear_values();
  request.set_text("x");
  EXPECT_FALSE(test.generate(request).status.ok());
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  const std::string log = test.log_text.str();
  EXPECT_THAT(log, HasSubstr("debug begin rpc=Generate peer="));
  EXPECT_THAT(log, HasSubstr("request_id=\"find me\""));
  EXPECT_THAT(log, HasSubstr("info call rpc=Generate model=small-symbols caller=\"\" peer=ipv4:"));
  EXPECT_THAT(log, HasSubstr(" code=OK given=1 sampled=3 queue_seconds="));
  EXPECT_THAT(log, HasSubstr(" code=INVALID_ARGUMENT given=1 sampled=0 seconds="));
  EXPECT_THAT(log, HasSubstr(" code=INVALID_ARGUMENT given=0 sampled=0 seconds="));
  EXPECT_THAT(log, ::testing::Not(HasSubstr(" model=\"\"")));
  EXPECT_THAT(log, HasSubstr(" message=\""));
  const double queued = std::stod(logged(log, "queue_seconds"));
  const double first = std::stod(logged(log, "first_seconds"));
  EXPECT_GE(queued, 0);
  EXPECT_GE(first, queued);
  EXPECT_LE(first, took.count() + 1e-3) << "both are rounded";
}

TEST(Generate, TheLogHasTheTraceOfACall) {
  TestServer test(served_fake("fake"));
  const auto call = [&](const std::vector<std::string>& traceparents) {
    grpc::ClientContext context;
    for (const std::string& text : traceparents) context.AddMetadata("traceparent", text);
    v1::GetModelRequest request;
    v1::ModelInfo info;
    EXPECT_TRUE(test.models->GetModel(&context, request, &info).ok());
  };
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string header = "00-" + trace + "-00f067aa0ba902b7-01";
  call({header, header});
  call({"00-" + trace});
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  EXPECT_THAT(test.log_text.str(), Not(HasSubstr("trace=")));
  call({header});
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  EXPECT_THAT(test.log_text.str(), HasSubstr("info call rpc=GetModel model=fake "));
  EXPECT_EQ(logged(test.log_text.str(), "trace"), trace);
}

TEST(Generate, TheLogOfCallsCanBeTurnedOff) {
  ServerOptions options;
  options.host.access_log = false;
  TestServer test(served_fake("fake"), options);
  EXPECT_TRUE(test.generate(generate_request({1}, 3)).status.ok());
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  EXPECT_THAT(test.log_text.str(), Not(HasSubstr("info call")));
}

}  // namespace
}  // namespace runnel
