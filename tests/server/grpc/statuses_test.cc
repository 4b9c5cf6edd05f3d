// Provokes every status of docs/api.md. (Tests of the store provoke DATA_LOSS.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "runnel/v1/fault.pb.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using Change = std::function<void(v1::GenerateRequest&)>;

// Holds the scheduler inside a step until a test opens it.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    --waiting_;
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for_someone() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

struct BadRequest {
  Change change;
  std::string message;
};

// The server refuses each request with INVALID_ARGUMENT and a message that contains `message`.
void expect_refused(TestServer& test, const v1::GenerateRequest& good,
                    const std::vector<BadRequest>& bad) {
  ASSERT_TRUE(test.generate(good).status.ok());
  for (const BadRequest& each : bad) {
    v1::GenerateRequest request = good;
    each.change(request);
    const Generated out = test.generate(request);
    EXPECT_EQ(out.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << each.message;
    EXPECT_THAT(out.status.error_message(), HasSubstr(each.message));
    EXPECT_TRUE(out.order.empty());
    EXPECT_TRUE(out.trailing.find("grpc-retry-pushback-ms") == out.trailing.end());
  }
  test.expect_free(8);
}

TEST(InvalidArgument, NamesTheFieldAndItsLimit) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  using R = v1::GenerateRequest;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto long_id = std::string(129, 'r');
  expect_refused(
      test, generate_request({1}, 2),
      {{[](R& r) { r.set_samples(0); }, "samples is 0; it must be between 1 and 64"},
       {[](R& r) { r.set_samples(65); }, "samples is 65"},
       {[](R& r) { r.set_samples(INT32_MIN); }, "samples is -2147483648"},
       {[](R& r) { r.set_samples(INT32_MAX); }, "samples is 2147483647"},
       {[](R& r) { r.set_max_values(-1); }, "max_values is -1; it must be between 0 and 1048576"},
       {[](R& r) { r.set_max_values(INT64_MAX); }, "max_values is"},
       {[](R& r) { r.clear_max_values(); }, "max_values is not set"},
       {[](R& r) { r.mutable_max_time(); }, "max_time must be above 0"},
       {[](R& r) { r.mutable_max_time()->set_seconds(-1); }, "max_time must be above 0"},
       {[](R& r) { r.mutable_max_time()->set_nanos(1 << 30); }, "max_time has seconds = 0"},
       {[](R& r) { r.mutable_sampling()->set_temperature(101); }, "sampling.temperature is 101"},
       {[](R& r) { r.mutable_sampling()->set_temperature(kNan); }, "sampling.temperature is"},
       {[](R& r) { r.mutable_sampling()->set_temperature(kInf); }, "sampling.temperature is inf"},
       {[](R& r) { r.mutable_sampling()->set_top_k(-1); }, "sampling.top_k is -1"},
       {[](R& r) { r.mutable_sampling()->set_top_k(12); }, "between 0 and 11"},
       {[](R& r) { r.mutable_sampling()->set_top_p(0); }, "sampling.top_p is 0"},
       {[](R& r) { r.mutable_sampling()->set_top_p(1.5F); }, "sampling.top_p is 1.5"},
       {[](R& r) { r.mutable_sampling()->set_top_p(kNan); }, "sampling.top_p is"},
       {[](R& r) { r.mutable_sampling()->set_min_p(-0.5F); }, "sampling.min_p is -0.5"},
       {[](R& r) { r.mutable_sampling()->set_repetition_penalty(0); },
        "sampling.repetition_penalty is 0"},
       {[](R& r) { r.mutable_sampling()->set_frequency_penalty(3); },
        "sampling.frequency_penalty is 3"},
       {[](R& r) { r.mutable_sampling()->set_presence_penalty(kNan); },
        "sampling.presence_penalty is"},
       {[](R& r) { (*r.mutable_sampling()->mutable_logit_bias())[11] = 1; },
        "sampling.logit_bias[11] is for no value"},
       {[](R& r) { r.add_stop(); }, "stop has an empty sequence"},
       {[](R& r) { r.add_stop()->add_values(11); }, "stop[0] is 11"},
       {[](R& r) {
          for (int i = 0; i < 9; ++i) r.add_stop()->add_values(1);
        },
        "stop has 9 sequences; at most 8"},
       {[](R& r) {
          auto* stop = r.add_stop();
          for (int i = 0; i < 33; ++i) stop->add_values(1);
        },
        "stop has 33 values; at most 32"},
       {[](R& r) { r.set_top_log_probs(-1); }, "top_log_probs is -1"},
       {[](R& r) { r.set_top_log_probs(INT32_MAX); }, "top_log_probs is 2147483647"},
       {[](R& r) {
          r.set_keep(true);
          r.set_samples(2);
        },
        "keep is set with samples = 2"},
       {[](R& r) { r.mutable_values()->add_values(11); }, "prompt[1] is 11"},
       {[](R& r) { r.mutable_values()->add_values(-1); }, "prompt[1] is -1"},
       {[](R& r) { r.set_text("hello"); }, "has no tokenizer: send numbers in values"},
       {[](R& r) { r.mutable_origin()->set_session("a b"); }, "a session's id must be"},
       {[](R& r) { r.mutable_origin()->set_session(""); }, "a session's id must be"},
       {[&](R& r) { r.set_request_id(long_id); }, "request_id is longer than 128"},
       {[](R& r) { r.mutable_delivery()->set_max_values(0); }, "delivery.max_values is 0"},
       {[](R& r) { r.mutable_delivery()->set_max_values(4097); }, "between 1 and 4096"},
       {[](R& r) { r.mutable_delivery()->mutable_max_delay()->set_seconds(61); },
        "delivery.max_delay is 61000 ms"},
       {[](R& r) { r.mutable_delivery()->mutable_max_delay()->set_seconds(-1); },
        "delivery.max_delay is -1000 ms"}});
}

TEST(InvalidArgument, AMixtureOfLogisticsHasNoFilters) {
  TestServer test(served_bundle(small_image_spec(), 1));
  using R = v1::GenerateRequest;
  expect_refused(test, generate_request({}, 2),
                 {{[](R& r) { r.mutable_sampling()->set_top_k(5); }, "need a categorical head"},
                  {[](R& r) { r.mutable_sampling()->set_top_p(0.5F); }, "need a categorical head"},
                  {[](R& r) { r.mutable_sampling()->set_min_p(0.5F); }, "need a categorical head"},
                  {[](R& r) { r.mutable_sampling()->set_presence_penalty(1); },
                   "sampling.presence_penalty needs a categorical head"}});
  v1::GenerateRequest greedy = generate_request({}, 2);
  greedy.mutable_sampling()->set_temperature(1e-8F);
  greedy.mutable_sampling()->set_top_k(5);
  greedy.mutable_sampling()->set_top_p(0);
  EXPECT_TRUE(test.generate(greedy).status.ok()) << "filters always keep the most likely value";
}

TEST(InvalidArgument, DetailsNameTheField) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  v1::GenerateRequest request = generate_request({1}, 2);
  request.mutable_sampling()->set_temperature(-1e-4F);
  const grpc::Status status = test.generate(request).status;
  v1::StatusDetails details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  EXPECT_EQ(details.message(), status.error_message());
  v1::Fault fault;
  ASSERT_EQ(details.details_size(), 1);
  ASSERT_TRUE(details.details(0).UnpackTo(&fault));
  EXPECT_EQ(fault.field(), "sampling.temperature");
  EXPECT_EQ(rendered(fault.message()), status.error_message());
  EXPECT_EQ(test.generate(generate_request({1}, 2)).status.error_details(), "");
}

TEST(InvalidArgument, UsesTheModelNameOfTheRequest) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  test.server.models().set_aliases({{"latest", "small-symbols"}});
  const auto refusal = [&](const std::string& model) {
    v1::GenerateRequest request = generate_request({1000}, 2);
    request.set_model(model);
    return test.generate(request).status.error_message();
  };
  EXPECT_THAT(refusal("latest"), HasSubstr("values of model 'latest' are"));
  EXPECT_THAT(refusal("small-symbols"), HasSubstr("values of model 'small-symbols' are"));
  EXPECT_THAT(refusal(""), HasSubstr("values of model 'small-symbols' are"));
  v1::GenerateRequest text = generate_request({1}, 2);
  text.set_model("latest");
  text.set_text("hello");
  EXPECT_THAT(test.generate(text).status.error_message(), HasSubstr("model 'latest' has no tok"));
  v1::ScoreRequest good = score_request({1, 2});
  good.set_model("latest");
  EXPECT_TRUE(test.score({good, good}).status.ok()) << "each message may name it so";
  v1::ScoreRequest bad = score_request({1000});
  EXPECT_THAT(test.score({good, bad}).status.error_message(),
              HasSubstr("values of model 'latest' are"));
}

TEST(NotFound, NamesTheMissingModelOrSession) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  v1::GenerateRequest request = generate_request({1}, 2);
  request.set_model("other");
  Generated out = test.generate(request);
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(out.status.error_message(), "no model 'other'; this server has 'small-symbols'");
  request = generate_request({1}, 2);
  request.mutable_origin()->set_session("gone");
  out = test.generate(request);
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(out.status.error_message(), HasSubstr("no session 'gone'"));
  EXPECT_EQ(field_of(out.status), "origin.session");
  request.mutable_origin()->set_state("stored");
  out = test.generate(request);
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(out.status.error_message(), HasSubstr("no stored state 'stored'"));
}

TEST(AlreadyExists, ASessionOfThatName) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  ASSERT_TRUE(test.create("a").ok());
  const grpc::Status status = test.create("a");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(status.error_message(), HasSubstr("session 'a' exists already"));
}

TEST(OutOfRange, NamesTheLengthOfASequence) {
  TestServer test(served_bundle(small_image_spec(), 1));
  const Generated out = test.generate(generate_request(std::vector<int32_t>(21, 1), 1));
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(out.status.error_message(),
              HasSubstr("a sequence of model 'small-image' holds at most 20 values"));
  grpc::ClientContext context;
  v1::ModelInfo info;
  ASSERT_TRUE(test.models->GetModel(&context, {}, &info).ok());
  EXPECT_EQ(info.max_length(), 20) << "one number everywhere";
  // A session that gets too many values is refused, too.
  ASSERT_TRUE(test.create("s").ok());
  v1::GenerateRequest request = generate_request(std::vector<int32_t>(15, 1), 0);
  request.mutable_origin()->set_session("s");
  ASSERT_TRUE(test.generate(request).status.ok());
  EXPECT_EQ(test.generate(request).status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

TEST(Aborted, ABusySession) {
  TestServer test(served_fake("fake", slowly));
  ASSERT_TRUE(test.create("s").ok());
  v1::GenerateRequest request = generate_request({1}, 1 << 20);
  request.mutable_origin()->set_session("s");
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  const Generated second = test.generate(request);
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(second.status.error_message(), HasSubstr("session 's' is busy"));
  // Deleting the session ends its running call.
  ASSERT_TRUE(test.remove("s").ok());
  while (reader->Read(&response)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("was deleted"));
}

TEST(Aborted, AnotherPositionThanExpected) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  ASSERT_TRUE(test.create("s").ok());
  v1::GenerateRequest request = generate_request({1}, 4);
  request.mutable_origin()->set_session("s");
  request.set_expected_position(0);
  ASSERT_TRUE(test.generate(request).status.ok());
  const Generated out = test.generate(request);
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(out.status.error_message(), HasSubstr("is at position 5, not at"));
}

TEST(Aborted, AReaderThatStopsReadingAndItsSessionStays) {
  EngineOptions options;
  options.stream_room = 64;
  options.stall_timeout = std::chrono::milliseconds(100);
  TestServer test(served_fake("fake", {}, options));
  ASSERT_TRUE(test.create("s").ok());
  v1::GenerateRequest request = generate_request({1}, 1 << 20);
  request.mutable_origin()->set_session("s");
  request.mutable_delivery()->set_max_values(64);
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, request);
  Generated out;
  v1::Session session;
  // The client reads nothing: the transport fills up, the stream stalls, and the session rests.
  ASSERT_TRUE(eventually([&] {
    return test.get("s", &session).ok() && session.state() == v1::Session::IDLE &&
           session.position() > 1;
  }));
  v1::GenerateResponse response;
  while (reader->Read(&response)) out.take(response);
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("not read for too long"));
  // No sampled value was lost: the session's position is right after the last one.
  EXPECT_EQ(std::ssize(out.values.at(0)) + 1, session.position());
}

TEST(Aborted, AReaderWhoNeverReadsAgainIsCutOff) {
  EngineOptions options;
  options.stream_room = 64;
  Clock clock{TimePoint(std::chrono::hours(1))};
  TestServer test(served_fake("fake", {}, options), {}, clock);
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, generate_request({1}, 1 << 20));
  // Waits until two checks find the same number of sampled values: the reader's buffers are full.
  int64_t last = 0;
  ASSERT_TRUE(eventually([&] {
    const int64_t now = (*test.server.models().find({}, ""))->engine->stats().values_sampled;
    return std::exchange(last, now) == now && now > 64;
  }));
  EXPECT_TRUE(eventually([&] {
    clock.advance(2 * test.server.context().stall_timeout);
    test.server.tend();
    return test.server.active_streams() == 0;
  }));
  test.expect_free(8);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(ResourceExhausted, AFullPoolSaysWhenToTryAgain) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(test.create(std::to_string(i)).ok());
  const Generated out = test.generate(generate_request({1}, 1));
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(out.status.error_message(), HasSubstr("0 of 8 sessions are free"));
  ASSERT_EQ(out.trailing.count("grpc-retry-pushback-ms"), 1U);
  EXPECT_EQ(out.trailing.find("grpc-retry-pushback-ms")->second, "1000");
  // Other calls that need a state are refused, too.
  EXPECT_EQ(test.score(std::vector<int32_t>{1, 2}).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext context;
  v1::Session session;
  EXPECT_EQ(test.sessions->CreateSession(&context, {}, &session).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(trailing_of(context, "grpc-retry-pushback-ms"), "1000");
}

TEST(ResourceExhausted, AFullMailboxRefusesAtOnce) {
  EngineOptions options;
  options.mailbox = 2;
  Gate gate;
  TestServer test(served_fake("fake", [&] { gate.pass(); }, options));
  std::thread first([&] { test.generate(generate_request({1, 2}, 3)); });
  gate.wait_for_someone();
  std::atomic<int> ok{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Generated out = test.generate(generate_request({1, 2}, 3));
      if (out.status.ok()) ++ok;
      if (out.status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return;
      EXPECT_THAT(out.status.error_message(), HasSubstr("too many calls wait"));
      EXPECT_EQ(out.trailing.count("grpc-retry-pushback-ms"), 1U);
      ++refused;
    });
  }
  EXPECT_TRUE(eventually([&] { return refused == 6; }));
  gate.open();
  for (std::thread& thread : threads) thread.join();
  first.join();
  EXPECT_EQ(ok, 2);
}

TEST(ResourceExhausted, AMessageThatIsTooLongIsNotRead) {
  ServerOptions options;
  options.grpc.message_bytes = 1024;
  TestServer test(served_bundle(small_symbol_spec(), 1), options);
  const Generated out = test.generate(generate_request(std::vector<int32_t>(5000, 1), 1));
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const ScoreOutcome scored =
      test.score(std::vector{score_request({1, 2}), score_request(std::vector<int32_t>(5000, 1))});
  EXPECT_EQ(scored.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(scored.has_total);
  test.expect_free(8);
}

TEST(Unavailable, BeforeTheModelsAreReady) {
  TestServer test;
  const Generated out = test.generate(generate_request({1}, 1));
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(out.status.error_message(), HasSubstr("not ready"));
  EXPECT_EQ(out.trailing.count("grpc-retry-pushback-ms"), 1U);
  EXPECT_EQ(test.score(std::vector<int32_t>{1}).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(test.create("a").error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(test.get("a").error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(test.remove("a").error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  EXPECT_EQ(test.models->ListModels(&context, {}, &models).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST(DeadlineExceeded, ComesInTimeAndTheSessionIsKept) {
  TestServer test(served_fake("fake", slowly));
  v1::GenerateRequest request = generate_request({1}, 1 << 20);
  std::string id;
  Generated out;
  // Doubles the deadline until values come before it.
  for (int ms = 200; out.values.empty() && ms < 300'000; ms *= 2) {
    id = "s-" + std::to_string(ms);
    ASSERT_TRUE(test.create(id).ok());
    request.mutable_origin()->set_session(id);
    out = test.generate(request, std::chrono::milliseconds(ms));
    EXPECT_EQ(out.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  ASSERT_FALSE(out.values.empty());
  v1::Session session;
  EXPECT_TRUE(eventually(
      [&] { return test.get(id, &session).ok() && session.state() == v1::Session::IDLE; }));
  EXPECT_GE(session.position(), 1 + std::ssize(out.values.at(0)));
}

TEST(Cancelled, IsTheStatusOfACancelledCall) {
  TestServer test(served_fake("fake", slowly));
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, generate_request({1}, 1 << 20));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  test.expect_free(8);
}

}  // namespace
}  // namespace runnel
