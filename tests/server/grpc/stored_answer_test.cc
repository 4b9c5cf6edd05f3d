// Calls made again on a server that did not make them first: the session's record has their values.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/host/call_answer.h"
#include "server/host/kept_sessions.h"
#include "storage/memory_store.h"
#include "storage/record_key.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class StoredAnswers : public ::testing::Test {
 protected:
  // A server with the shared store.
  std::unique_ptr<TestServer> server(const Spec& spec = small_symbol_spec()) {
    ServerOptions options;
    options.host.storage.store =
        std::make_shared<MemoryStore>(shelf_, StoreSettings().times, clock_);
    options.host.storage.log_bytes = log_bytes_;
    options.host.storage.answer_bytes = answer_bytes_;
    return std::make_unique<TestServer>(served_bundle(spec, 1, engine_), options, clock_);
  }

  static v1::GenerateRequest call(const std::string& id, const std::vector<int32_t>& prompt,
                                  int64_t values) {
    v1::GenerateRequest request = generate_request(prompt, values, 7);
    request.mutable_origin()->set_session("a");
    request.set_request_id(id);
    return request;
  }

  static std::string key(TestServer& test) {
    return record_key((*test.server.models().find({}, ""))->state_digest, "", "a");
  }
  static Record record(TestServer& test) {
    const auto found = test.server.context().kept->store().look(key(test));
    EXPECT_TRUE(found.ok() && *found);
    return found.ok() && *found ? **found : Record();
  }
  // Replaces the answer in the record, as anyone who can write to the store may.
  void put_answer(TestServer& test, const SavedAnswer& answer) {
    const std::string name = key(test);
    std::lock_guard lock(shelf_->mutex);
    shelf_->entries.at(name).record.answer = answer;
  }

  static void expect_same(const Generated& found, const Generated& expected) {
    ASSERT_TRUE(found.status.ok()) << found.status.error_message();
    EXPECT_EQ(found.values, expected.values);
    EXPECT_EQ(found.log_probs, expected.log_probs);
    EXPECT_EQ(found.first_position, expected.first_position);
    EXPECT_EQ(found.started.session(), expected.started.session());
    EXPECT_EQ(found.started.seed(), expected.started.seed());
    EXPECT_EQ(found.started.position(), expected.started.position());
    ASSERT_EQ(found.finished.size(), 1U);
    EXPECT_EQ(found.finished.at(0).SerializeAsString(),
              expected.finished.at(0).SerializeAsString());
    ASSERT_EQ(found.top.size(), expected.top.size());
    for (const auto& [sample, tops] : expected.top) {
      ASSERT_EQ(found.top.at(sample).size(), tops.size());
      for (size_t i = 0; i < tops.size(); ++i) {
        EXPECT_EQ(found.top.at(sample)[i].SerializeAsString(), tops[i].SerializeAsString());
      }
    }
  }

  // Makes a call, reads at least `count` values, and cancels it. Returns the values that were read.
  static std::vector<int32_t> make_and_cancel(TestServer& test, const v1::GenerateRequest& request,
                                              size_t count) {
    grpc::ClientContext context;
    const auto reader = test.inference->Generate(&context, request);
    std::vector<int32_t> values;
    v1::GenerateResponse response;
    while (values.size() < count && reader->Read(&response)) {
      for (const auto& run : response.values().runs()) {
        values.insert(values.end(), run.values().begin(), run.values().end());
      }
    }
    EXPECT_GE(values.size(), count);
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    EXPECT_FALSE(reader->Finish().ok());
    expect_rest(test);
    return values;
  }

  // Waits until no call has a session open.
  static void expect_rest(TestServer& test) {
    EXPECT_TRUE(eventually([&] {
      return test.server.active_streams() == 0 &&
             test.server.context().kept->wait_until_saved(Duration(0));
    }));
  }

  // The first values of the same call without an interruption.
  static std::vector<int32_t> expected_values(v1::GenerateRequest request, size_t count) {
    TestServer untouched(served_bundle(small_symbol_spec(), 1));
    EXPECT_TRUE(untouched.create("a").ok());
    request.set_max_values(static_cast<int64_t>(count));
    return untouched.generate(request).values[0];
  }

  Clock clock_{TimePoint(std::chrono::hours(1))};  // does not advance, so no state is saved at rest
  int64_t log_bytes_ = StorageOptions().log_bytes;
  int64_t answer_bytes_ = StorageOptions().answer_bytes;
  EngineOptions engine_;
  const std::shared_ptr<MemoryShelf> shelf_ = std::make_shared<MemoryShelf>();
};

TEST_F(StoredAnswers, ARetryGetsItsValuesFromEveryServer) {
  for (const int64_t log_bytes : {StorageOptions().log_bytes, int64_t{0}}) {
    log_bytes_ = log_bytes;
    const auto one = server();
    ASSERT_TRUE(one->create("a").ok());
    ASSERT_TRUE(one->generate(call("before", {3}, 4)).status.ok());
    v1::GenerateRequest request = call("again", {1, 2}, 40);
    request.set_expected_position(5);
    request.set_top_log_probs(3);
    const Generated first = one->generate(request);
    ASSERT_TRUE(first.status.ok()) << first.status.error_message();
    const Record made = record(*one);
    for (int i = 0; i < 2; ++i) {
      const auto other = server();
      for (int again = 0; again < 2; ++again) expect_same(other->generate(request), first);
      Record found = record(*other);
      EXPECT_EQ(found.position, 47);
      EXPECT_EQ(found.saved, made.saved) << "nothing was saved again";
      EXPECT_EQ(found.state, made.state);
      EXPECT_EQ(found.log, made.log);
      EXPECT_EQ(found.answer, made.answer);
      EXPECT_EQ(found.until, 0) << "it is not in use";
    }
    expect_same(one->generate(request), first);
    const auto other = server();
    ASSERT_TRUE(other->generate(call("after", {1}, 2)).status.ok());
    EXPECT_EQ(other->generate(request).status.error_code(), kAborted) << "it is not the last call";
    ASSERT_TRUE(one->remove("a").ok());
  }
}

TEST_F(StoredAnswers, ASessionLoadedForAnotherCallHasTheAnswerToo) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  const Generated first = one->generate(call("again", {1, 2}, 5));
  v1::GenerateRequest reads = call("", {3}, 2);
  reads.set_keep(false);
  ASSERT_TRUE(two->generate(reads).status.ok());
  expect_same(two->generate(call("again", {1, 2}, 5)), first);
  const Generated next = two->generate(call("next", {1}, 3));
  ASSERT_TRUE(next.status.ok()) << next.status.error_message();
  EXPECT_EQ(next.started.position(), 7);
}

TEST_F(StoredAnswers, ASessionMadeByACallHasItsAnswer) {
  const auto one = server();
  v1::GenerateRequest request = generate_request({1, 2}, 4, 3);
  request.set_keep(true);
  request.set_request_id("new");
  const Generated first = one->generate(request);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const auto two = server();
  expect_same(two->generate(request), first);
  request.set_max_values(5);
  EXPECT_EQ(server()->generate(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(StoredAnswers, AnotherRequestUnderTheSameIdIsRefused) {
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call("again", {1, 2}, 5)).status.ok());
  const auto two = server();
  const Generated other = two->generate(call("again", {1, 2}, 6));
  EXPECT_EQ(other.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(other.status.error_message(), HasSubstr("was used for another request"));
  expect_rest(*two);
  EXPECT_EQ(record(*two).position, 7);
  EXPECT_TRUE(two->generate(call("again", {1, 2}, 5)).status.ok());
}

TEST_F(StoredAnswers, RefusesAnswersThatDoNotFit) {
  answer_bytes_ = 500;
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call("short", {1}, 5)).status.ok());
  EXPECT_TRUE(two->generate(call("short", {1}, 5)).status.ok());
  ASSERT_TRUE(one->generate(call("long", {1}, 50)).status.ok());
  const Generated refused = two->generate(call("long", {1}, 50));
  EXPECT_EQ(refused.status.error_code(), kAborted);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("was made and saved already"));
  EXPECT_TRUE(one->generate(call("long", {1}, 50)).status.ok()) << "it has them in memory";
  engine_.record_bytes = 0;
  answer_bytes_ = StorageOptions().answer_bytes;
  const auto three = server();
  ASSERT_TRUE(three->generate(call("none", {1}, 5)).status.ok());
  EXPECT_EQ(two->generate(call("none", {1}, 5)).status.error_code(), kAborted);
}

TEST_F(StoredAnswers, ACallThatWasStoppedContinuesOnAnyServer) {
  answer_bytes_ = kMostAnswerBytes;  // for all values sampled until the server notices the cancel
  engine_.record_bytes = 64 << 20;
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  const v1::GenerateRequest request = call("again", {1, 2}, 1 << 20);
  make_and_cancel(*one, request, 5);
  const Record stopped = record(*one);
  EXPECT_FALSE(stopped.answer.has_ended);
  const auto sampled = static_cast<size_t>(stopped.position - 2);
  ASSERT_GE(sampled, 5U);
  const auto two = server();
  const auto values = make_and_cancel(*two, request, sampled + 50);
  EXPECT_EQ(values, expected_values(request, values.size()));
  EXPECT_GT(record(*one).position, stopped.position);
  EXPECT_FALSE(record(*one).answer.has_ended);
  // Another call continues from there, as it would on the server that made the call.
  const Generated next = two->generate(call("next", {1}, 3));
  ASSERT_TRUE(next.status.ok()) << next.status.error_message();
}

TEST_F(StoredAnswers, ACallThatWasStoppedEndsOnAnotherServerAndIsThenAnswered) {
  answer_bytes_ = kMostAnswerBytes;
  engine_.record_bytes = 64 << 20;
  v1::GenerateRequest request = call("again", {1, 2}, 5000);
  request.mutable_delivery()->set_max_values(1);  // a client that does not read stops the call
  request.set_top_log_probs(5);
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  make_and_cancel(*one, request, 5);
  ASSERT_FALSE(record(*one).answer.has_ended);
  const auto two = server();
  const Generated ended = two->generate(request);
  ASSERT_TRUE(ended.status.ok()) << ended.status.error_message();
  EXPECT_EQ(ended.values.at(0), expected_values(request, 5000));
  EXPECT_TRUE(record(*two).answer.has_ended);
  expect_same(server()->generate(request), ended);
  expect_same(one->generate(request), ended);
}

TEST_F(StoredAnswers, ARefusalSaysThatTheCallWasStoppedBeforeItsEnd) {
  answer_bytes_ = 0;
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  const v1::GenerateRequest request = call("again", {1, 2}, 1 << 20);
  make_and_cancel(*one, request, 5);
  const int64_t position = record(*one).position;
  const Generated refused = server()->generate(request);
  EXPECT_EQ(refused.status.error_code(), kAborted);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("was stopped before its end"));
  EXPECT_THAT(refused.status.error_message(),
              HasSubstr("is at position " + std::to_string(position)));
  EXPECT_THAT(refused.status.error_message(), Not(HasSubstr("made and saved already")));
}

TEST_F(StoredAnswers, AnInvalidAnswerIsRefusedAndTheSessionContinues) {
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  const v1::GenerateRequest request = call("again", {1, 2}, 5);
  const Generated first = one->generate(request);
  ASSERT_TRUE(first.status.ok());
  const Record made = record(*one);
  const auto refused = [&](const SavedAnswer& answer) {
    put_answer(*one, answer);
    const auto two = server();
    const grpc::Status status = two->generate(request).status;
    expect_rest(*two);
    EXPECT_EQ(record(*two).position, 7);
    EXPECT_EQ(record(*two).until, 0) << "it is not in use";
    v1::GenerateRequest reads = call("", {3}, 2);
    reads.set_keep(false);
    EXPECT_TRUE(two->generate(reads).status.ok());
    return status;
  };
  const auto changed = [&](const std::function<void(CallRecord&)>& change) {
    const auto answer = read_answer(made, small_symbol_spec());
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    change(**answer);
    return answer_of(answer->get(), kMostAnswerBytes);
  };
  grpc::Status status = refused({.text = made.answer.text.substr(1)});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(status.error_message(), HasSubstr("the stored answer to this call on session 'a'"));
  status = refused(changed([](auto& answer) { answer.values[0].value = 1 << 20; }));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(status.error_message(), HasSubstr("values that cannot be"));
  status = refused(changed([](auto& answer) { answer.values.pop_back(); }));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(status.error_message(), HasSubstr("do not lead to position 7"));
  status = refused(changed([](auto& answer) { answer.digest[0] ^= 1; }));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(one->generate(request).values, first.values) << "from memory";
  put_answer(*one, made.answer);
  expect_same(server()->generate(request), first);
}

}  // namespace
}  // namespace runnel
