// Sessions with their last calls in a log. A server that loads such a session replays these calls.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/host/kept_sessions.h"
#include "storage/memory_store.h"
#include "storage/record_key.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/server/openai/chat_models.h"
#include "tests/storage/faulty_store.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

constexpr auto kMs = std::chrono::milliseconds(1);
constexpr auto kMaxTime = 40 * kMs;

ServedModel model_of(const Spec& spec) {
  ModelLimits limits = kTestLimits;
  limits.recent = 16;
  limits.steps = 3;  // for calls without stops, such as replays
  return served_bundle(spec, 1, {}, limits);
}

class SessionLogs : public ::testing::Test {
 protected:
  // Options of servers that share a store.
  ServerOptions options() {
    ServerOptions options;
    const auto memory = std::make_shared<MemoryStore>(shelf_, StoreSettings().times, clock_);
    options.host.storage.store = std::make_shared<FaultyStore>(
        memory,
        [this](const std::string& operation) { return before_ ? before_(operation) : Status(); });
    options.host.storage.log_bytes = log_bytes_;
    return options;
  }
  std::unique_ptr<TestServer> server(const Spec& spec = small_symbol_spec()) {
    return std::make_unique<TestServer>(model_of(spec), options(), clock_);
  }

  static v1::GenerateRequest call(const std::vector<int32_t>& prompt, int64_t values,
                                  bool keep = true) {
    v1::GenerateRequest request = generate_request(prompt, values, 7);
    request.mutable_origin()->set_session("a");
    request.set_keep(keep);
    return request;
  }

  static Record record(TestServer& test, const std::string& id = "a") {
    const std::string digest = (*test.server.models().find({}, ""))->state_digest;
    const auto found = test.server.context().kept->store().look(record_key(digest, "", id));
    EXPECT_TRUE(found.ok() && *found);
    return found.ok() && *found ? **found : Record();
  }

  static int64_t replayed(TestServer& test) {
    return test.server.context().metrics.replayed_values.value();
  }
  static int64_t snapshots(TestServer& test, SnapshotReason reason) {
    return test.server.context().metrics.snapshots[static_cast<size_t>(reason)].value();
  }

  // The next values of the session have the same bits on both servers.
  static void expect_same(TestServer& one, TestServer& two) {
    const auto reads = call({1}, 4, false);
    const Generated here = one.generate(reads);
    const Generated there = two.generate(reads);
    ASSERT_TRUE(there.status.ok()) << there.status.error_message();
    EXPECT_EQ(there.started.position(), here.started.position());
    EXPECT_EQ(there.log_probs, here.log_probs);
    EXPECT_EQ(there.values, here.values);
  }

  // Makes `request` on one server. Another server then replays the call, and samples `values` anew.
  void expect_replayed(const Spec& spec, const v1::GenerateRequest& request, int64_t values) {
    const auto one = server(spec);
    const auto two = server(spec);
    ASSERT_TRUE(one->create("a").ok());
    const Generated made = one->generate(request);
    ASSERT_TRUE(made.status.ok()) << made.status.error_message();
    expect_same(*one, *two);
    EXPECT_EQ(replayed(*two), values);
    ASSERT_TRUE(one->remove("a").ok());
  }

  // Makes a session whose log has an entry that no server would write.
  void put_call(TestServer& test, const LoggedCall& call, const std::string& numerics) {
    ASSERT_TRUE(test.create("a").ok());
    const auto model = *test.server.models().find({}, "");
    const std::string key = record_key(model->state_digest, "", "a");
    Store& store = test.server.context().kept->store();
    const std::string owner = store.replica() + "/other";
    const auto begun = store.begin(key, {.owner = owner, .request = "x"});
    ASSERT_TRUE(*store.log(key, {owner, begun->epoch}, {call.after, log_text(call, numerics)}));
  }
  static LoggedCall some_call(const std::vector<int32_t>& prompt, int64_t sampled, int64_t after) {
    LoggedCall call;
    call.request.prompt = prompt;
    call.request.max_values = sampled;
    call.request.seed = 3;
    call.after = after;
    return call;
  }

  Clock clock_{TimePoint(std::chrono::hours(1))};
  int64_t log_bytes_ = StorageOptions().log_bytes;
  std::function<Status(const std::string&)> before_;
  const std::shared_ptr<MemoryShelf> shelf_ = std::make_shared<MemoryShelf>();
};

TEST_F(SessionLogs, AReplayHasTheBitsOfEveryFamily) {
  for (const Spec& spec : small_family_specs()) {
    SCOPED_TRACE(spec.name);
    TestServer untouched(model_of(spec));
    const auto one = server(spec);
    const auto two = server(spec);
    ASSERT_TRUE(one->create("a").ok());
    ASSERT_TRUE(untouched.create("a").ok());
    int64_t position = 0;
    for (int turn = 0; turn < 8; ++turn) {
      auto request = call({1, 2, turn}, 6);
      v1::Sampling& sampling = *request.mutable_sampling();
      sampling.set_repetition_penalty(1.3F);
      sampling.set_frequency_penalty(0.5F);
      sampling.set_top_p(0.9F);
      (*sampling.mutable_logit_bias())[3] = -1.5F;
      TestServer& test = turn % 4 < 2 ? *one : *two;  // half of the turns must load the session
      const Generated found = test.generate(request);
      ASSERT_TRUE(found.status.ok()) << found.status.error_message();
      EXPECT_EQ(found.log_probs, untouched.generate(request).log_probs) << turn;
      position = found.finished.at(0).usage().position();
      EXPECT_EQ(record(test).position, position);
    }
    EXPECT_GT(replayed(*one) + replayed(*two), 0);
    EXPECT_EQ(record(*one).log.size(), 1U) << "a log that was replayed is not made longer";
    EXPECT_EQ(record(*one).position, position);
    ASSERT_TRUE(one->remove("a").ok());
  }
}

TEST_F(SessionLogs, AReplayEndsWhereTheCallWasEnded) {
  TestServer untouched(model_of(small_text_spec()));
  ASSERT_TRUE(untouched.create("a").ok());
  const Generated whole = untouched.generate(call({72}, 100));
  const std::vector<int32_t>& all = whole.values.at(0);
  auto request = call({72}, 100);
  request.add_stop()->add_values(all[6]);
  expect_replayed(small_text_spec(), request, 2 + (std::ranges::find(all, all[6]) - all.begin()));
  request = call({72}, 100);
  const auto letter =
      std::ranges::find_if(all, [](int32_t value) { return value >= 'A' && value <= 'z'; });
  ASSERT_NE(letter, all.end());
  request.add_stop_text(std::string(1, static_cast<char>(*letter)));
  expect_replayed(small_text_spec(), request, 2 + (letter - all.begin()));
}

TEST_F(SessionLogs, AReplayHasTheValuesOfACallThatRanOutOfTime) {
  const auto slow = [&] {
    // The fifth step lasts until the call's time has passed.
    const auto before_step = [steps = 0]() mutable {
      if (++steps != 5) return;
      const TimePoint end = real_clock().now() + kMaxTime;
      EXPECT_TRUE(eventually([&] { return real_clock().now() >= end; }));
    };
    return std::make_unique<TestServer>(served_fake("fake", before_step), options(), clock_);
  };
  const auto one = slow();
  const auto two = slow();
  ASSERT_TRUE(one->create("a").ok());
  auto request = call({1, 2}, 200);
  request.mutable_max_time()->set_nanos(Duration(kMaxTime).count());
  const Generated made = one->generate(request);
  ASSERT_TRUE(made.status.ok()) << made.status.error_message();
  EXPECT_EQ(made.finished.at(0).reason(), v1::Finished::TIME);
  expect_same(*one, *two);
}

TEST_F(SessionLogs, AReplayReadsTheValuesOfATurnOfAConversation) {
  TestServer one(chat_model(), options(), clock_);
  TestServer two(chat_model(), options(), clock_);
  ASSERT_TRUE(one.create("a").ok());
  for (const char* text : {"HI", "SO"}) {
    v1::GenerateRequest request = generate_request({}, 5, 7);
    request.mutable_origin()->set_session("a");
    v1::ChatMessage& message = *request.mutable_conversation()->add_messages();
    message.set_role("user");
    message.set_content(text);
    const Generated made = one.generate(request);
    ASSERT_TRUE(made.status.ok()) << made.status.error_message();
  }
  const Record found = record(one);
  EXPECT_EQ(found.log.size(), 1U) << "the first turn has a state";
  EXPECT_GT(found.state_at, 0);
  expect_same(one, two);
  EXPECT_EQ(replayed(two), found.position - found.state_at);
}

TEST_F(SessionLogs, ACancelledCallIsSavedAsAState) {
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call({1, 2}, 5)).status.ok());
  EXPECT_EQ(record(*one).log.size(), 1U);
  grpc::ClientContext context;
  const auto reader = one->inference->Generate(&context, call({1}, 1 << 20));
  v1::GenerateResponse response;
  EXPECT_TRUE(reader->Read(&response));
  context.TryCancel();
  static_cast<void>(reader->Finish());
  EXPECT_TRUE(eventually([&] { return record(*one).log.empty(); }));
  EXPECT_GT(record(*one).position, 7);
  EXPECT_TRUE(eventually([&] { return snapshots(*one, SnapshotReason::kCall) == 1; }));
  const auto two = server();
  expect_same(*one, *two);
  EXPECT_EQ(replayed(*two), 0);
}

TEST_F(SessionLogs, AnIdleSessionIsSavedAsAState) {
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  for (const int32_t value : {1, 2}) ASSERT_TRUE(one->generate(call({value}, 5)).status.ok());
  clock_.advance(900 * kMs);
  one->server.tend();
  EXPECT_EQ(record(*one).log.size(), 2U);
  EXPECT_EQ(record(*one).state_at, 0);
  clock_.advance(100 * kMs);
  one->server.tend();
  EXPECT_TRUE(eventually([&] { return record(*one).log.empty(); }));
  EXPECT_EQ(record(*one).state_at, 12);
  EXPECT_TRUE(eventually([&] { return snapshots(*one, SnapshotReason::kRest) == 1; }));
  const auto two = server();
  expect_same(*one, *two);
  EXPECT_EQ(replayed(*two), 0);
  ASSERT_TRUE(one->generate(call({3}, 5)).status.ok());
  EXPECT_EQ(record(*one).log.size(), 1U) << "after the state";
  expect_same(*one, *two);
  EXPECT_EQ(replayed(*two), 6);
  EXPECT_THAT(two->server.metrics_text(), HasSubstr("runnel_session_replayed_values_total 6\n"));
}

TEST_F(SessionLogs, WritingAStateDoesNotDelayCallsOfItsSession) {
  std::latch goes_on(1);
  std::atomic<int> settling{0};
  before_ = [&](const std::string& operation) {
    if (operation != "settle" || ++settling > 1) return Status();
    goes_on.wait();
    return Status();
  };
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call({1}, 5)).status.ok());
  clock_.advance(1000 * kMs);
  one->server.tend();
  EXPECT_TRUE(eventually([&] { return settling == 1; }));
  EXPECT_TRUE(one->generate(call({2}, 5)).status.ok());
  goes_on.count_down();
  clock_.advance(1000 * kMs);
  EXPECT_TRUE(eventually([&] {
    one->server.tend();
    return settling == 2 && record(*one).log.empty();
  })) << "the late state is of an earlier call, and is refused";
  EXPECT_EQ(record(*one).state_at, 12);
  const auto two = server();
  expect_same(*one, *two);
}

TEST_F(SessionLogs, TheLogIsKeptIfTheStateOfAnIdleSessionCannotBeWritten) {
  std::atomic<int> settling{0};
  before_ = [&](const std::string& operation) {
    if (operation != "settle") return Status();
    ++settling;
    return Status(Code::kResourceExhausted, "the disk is full");
  };
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call({1}, 5)).status.ok());
  clock_.advance(1000 * kMs);
  one->server.tend();
  EXPECT_TRUE(
      eventually([&] { return one->server.context().metrics.storage_errors.value() == 1; }));
  EXPECT_EQ(record(*one).log.size(), 1U);
  EXPECT_TRUE(one->generate(call({2}, 5)).status.ok());
  const auto two = server();
  expect_same(*one, *two);
  EXPECT_EQ(replayed(*two), 12);
}

TEST_F(SessionLogs, TheStateOfAnIdleSessionIsWrittenAfterACallThatChangedNothing) {
  std::latch began(1);
  std::latch goes_on(1);
  std::atomic<int> begun{0};
  before_ = [&](const std::string& operation) {
    if (operation != "begin" || ++begun != 2) return Status();
    began.count_down();
    goes_on.wait();
    return Status();
  };
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call({1}, 5)).status.ok());
  std::thread caller([&] {
    auto elsewhere = call({1}, 5);
    elsewhere.set_expected_position(99);
    EXPECT_FALSE(one->generate(elsewhere).status.ok());
  });
  began.wait();
  clock_.advance(1000 * kMs);
  one->server.tend();  // does nothing while a call uses the session
  goes_on.count_down();
  caller.join();
  EXPECT_TRUE(eventually([&] {
    clock_.advance(1000 * kMs);
    one->server.tend();
    return record(*one).log.empty();
  }));
  EXPECT_EQ(record(*one).state_at, 6);
  EXPECT_EQ(snapshots(*one, SnapshotReason::kCall), 0);
}

TEST_F(SessionLogs, ADrainLeavesNoLog) {
  const auto two = server();
  std::vector<std::string> ids = {"b", "c", "d", "e", "f"};
  {
    const auto one = server();
    for (const std::string& id : ids) {
      ASSERT_TRUE(one->create(id).ok());
      auto request = call({1, 2}, 5);
      request.mutable_origin()->set_session(id);
      ASSERT_TRUE(one->generate(request).status.ok());
      EXPECT_EQ(record(*one, id).log.size(), 1U);
    }
    one->server.drain(Duration(0));
    EXPECT_EQ(snapshots(*one, SnapshotReason::kDrain), 5);
  }
  for (const std::string& id : ids) {
    EXPECT_TRUE(record(*two, id).log.empty()) << id;
    EXPECT_EQ(record(*two, id).state_at, 7);
  }
}

TEST_F(SessionLogs, AFullLogIsReplacedByAState) {
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call({1}, 200)).status.ok());
  EXPECT_EQ(record(*one).log.size(), 1U);
  ASSERT_TRUE(one->generate(call({1}, 54)).status.ok());
  EXPECT_EQ(record(*one).log.size(), 2U) << "256 values";
  ASSERT_TRUE(one->generate(call({1}, 5)).status.ok());
  EXPECT_TRUE(record(*one).log.empty());
  EXPECT_EQ(snapshots(*one, SnapshotReason::kFull), 1);
  ASSERT_TRUE(one->generate(call({1}, 300)).status.ok());
  EXPECT_EQ(snapshots(*one, SnapshotReason::kFull), 2);
  const auto two = server();
  expect_same(*one, *two);
  EXPECT_EQ(replayed(*two), 0);
  log_bytes_ = 500;
  const auto small = server();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(small->generate(call({1}, 2)).status.ok());
  EXPECT_GT(snapshots(*small, SnapshotReason::kFull), 0);
  EXPECT_EQ(snapshots(*small, SnapshotReason::kCall), 0);
}

TEST_F(SessionLogs, WithoutALogEachCallSavesAState) {
  log_bytes_ = 0;
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call({1}, 5)).status.ok());
  EXPECT_TRUE(record(*one).log.empty());
  EXPECT_EQ(snapshots(*one, SnapshotReason::kCall), 1);
}

TEST_F(SessionLogs, AnInvalidEntryIsRefusedAndKept) {
  const auto one = server();
  const std::string numerics = (*one->server.models().find({}, ""))->engine->numerics();
  const auto refused = [&](const LoggedCall& logged, const std::string& id, const char* says) {
    put_call(*one, logged, id);
    grpc::Status status;
    for (const bool keep : {false, true}) {
      status = one->generate(call({1}, 2, keep)).status;
      EXPECT_THAT(status.error_message(), HasSubstr(says));
      EXPECT_EQ(record(*one).log.size(), 1U);
      EXPECT_EQ(record(*one).until, 0) << "it is not in use";
    }
    EXPECT_TRUE(one->remove("a").ok());
    return status.error_code();
  };
  EXPECT_EQ(refused(some_call({1}, 2, 9), numerics, "ended at position 3, not at 9"),
            grpc::StatusCode::INTERNAL);
  EXPECT_EQ(refused(some_call({1}, 2, 3), "another", "of numerics id 'another'"),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused(some_call({99}, 2, 3), numerics, "cannot be computed again"),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused(some_call({1}, 2, 300), numerics, "over more than 256 values"),
            grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(refused(some_call({1}, 2, 3), numerics, "samples other values on this server"),
            grpc::StatusCode::FAILED_PRECONDITION);
  one->expect_free(8);
  LoggedCall same = some_call({1}, 2, 3);
  ASSERT_TRUE(one->create("b").ok());
  v1::GenerateRequest request = generate_request({1}, 2, 3);
  request.mutable_origin()->set_session("b");
  const Generated made = one->generate(request);
  for (const int32_t value : made.values.at(0)) same.sampled = hash_with(same.sampled, value);
  put_call(*one, same, numerics);
  EXPECT_TRUE(one->generate(call({1}, 2)).status.ok());
  EXPECT_EQ(record(*one).position, 6);
}

TEST_F(SessionLogs, AfterAReadingCallReplaysALogTheNextCallSavesAState) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call({1, 2}, 5)).status.ok());
  ASSERT_TRUE(two->generate(call({1}, 2, false)).status.ok());
  EXPECT_EQ(replayed(*two), 7);
  EXPECT_EQ(record(*two).log.size(), 1U);
  ASSERT_TRUE(two->generate(call({1}, 2)).status.ok());
  EXPECT_TRUE(record(*two).log.empty());
  ASSERT_TRUE(two->generate(call({1}, 2)).status.ok());
  EXPECT_EQ(record(*two).log.size(), 1U) << "after a state of its own";
}

TEST_F(SessionLogs, AReplayEndsWhenTheServerStops) {
  std::latch began(1);
  std::latch goes_on(1);
  std::atomic<int> steps{0};
  TestServer test(served_fake("fake",
                              [&] {
                                if (++steps != 5) return;
                                began.count_down();
                                goes_on.wait();
                              }),
                  options(), clock_);
  const std::string numerics = (*test.server.models().find({}, ""))->engine->numerics();
  put_call(test, some_call({1}, 200, 201), numerics);
  grpc::Status status;
  std::thread caller([&] { status = test.generate(call({1}, 2)).status; });
  began.wait();
  test.server.context().draining = true;
  goes_on.count_down();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("call 1 of the log of session 'a'"));
  EXPECT_EQ(record(test).log.size(), 1U);
  EXPECT_EQ(record(test).until, 0);
}

TEST_F(SessionLogs, AReadingCallLoadsTheNewStateIfItsOwnWasReplaced) {
  std::latch began(1);
  std::latch goes_on(1);
  std::atomic<int> loads{0};
  before_ = [&](const std::string& operation) {
    if (operation != "load" || ++loads > 1) return Status();
    began.count_down();
    goes_on.wait();
    return Status();
  };
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call({1}, 5)).status.ok());
  clock_.advance(1000 * kMs);
  one->server.tend();
  EXPECT_TRUE(eventually([&] { return record(*one).state_at == 6; }));
  ASSERT_TRUE(one->generate(call({2}, 5)).status.ok());
  std::thread reader([&] { expect_same(*one, *two); });
  began.wait();
  clock_.advance(1000 * kMs);
  one->server.tend();
  EXPECT_TRUE(eventually([&] { return record(*one).state_at == 12; }));
  goes_on.count_down();
  reader.join();
  EXPECT_EQ(loads, 2);
  EXPECT_EQ(replayed(*two), 0) << "the second record has no log";
}

TEST_F(SessionLogs, MoreSessionsThanSlotsKeepTheirBits) {
  constexpr int kSessions = 12;
  ModelLimits limits = kTestLimits;
  TestServer untouched(served_bundle(small_symbol_spec(), 1, {}, [&] {
    limits.slots = kSessions + 1;
    return limits;
  }()));
  limits.slots = 2;
  TestServer test(served_bundle(small_symbol_spec(), 1, {}, limits), options(), clock_);
  for (int i = 0; i < 4 * kSessions; ++i) {
    const std::string id = "s" + std::to_string(i % kSessions);
    if (i < kSessions) {
      ASSERT_TRUE(test.create(id).ok());
      ASSERT_TRUE(untouched.create(id).ok());
    }
    auto request = call({1, 2}, 5);
    request.mutable_origin()->set_session(id);
    const Generated found = test.generate(request);
    ASSERT_TRUE(found.status.ok()) << found.status.error_message();
    EXPECT_EQ(found.log_probs, untouched.generate(request).log_probs) << i;
    if (i % 5 > 0) continue;
    clock_.advance(1000 * kMs);
    test.server.tend();
  }
  EXPECT_GT(replayed(test), 0);
  test.expect_free(2);
}

}  // namespace
}  // namespace runnel
