// Sessions in a store: they continue on another server, or after a restart, with the same bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/rewinds.h"
#include "server/host/kept_sessions.h"
#include "storage/directory_store.h"
#include "storage/memory_store.h"
#include "storage/record_key.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/storage/faulty_store.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

class StoredSessions : public ::testing::Test {
 protected:
  StoredSessions() {
    options_.host.storage.settings.url = "dir:" + folder_.path() + "/store";
    options_.host.storage.settings.sync = "none";
    options_.host.storage.settings.times.timeout_ms = 60000;
  }

  std::unique_ptr<TestServer> server() const {
    return std::make_unique<TestServer>(served_bundle(small_symbol_spec(), 1), options_);
  }

  static v1::GenerateRequest in_session(const std::string& session,
                                        const std::vector<int32_t>& prompt, int64_t values = 5) {
    v1::GenerateRequest request = generate_request(prompt, values, 7);
    request.mutable_origin()->set_session(session);
    return request;
  }

  // A call that keeps its session and runs until it is cancelled or the server ends it.
  struct LongCall {
    LongCall(TestServer& test, const std::string& session) {
      reader = test.inference->Generate(&context, in_session(session, {1}, 1 << 20));
      v1::GenerateResponse response;
      EXPECT_TRUE(reader->Read(&response));
    }
    grpc::Status finish() {
      for (v1::GenerateResponse response; reader->Read(&response);) {
      }
      return reader->Finish();
    }

    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  };

  static void expect_saved(TestServer& test) {
    EXPECT_TRUE(eventually([&] {
      return test.server.active_streams() == 0 &&
             test.server.context().kept->wait_until_saved(Duration(0));
    }));
  }

  static int64_t position(TestServer& test, const std::string& id) {
    v1::Session session;
    const grpc::Status status = test.get(id, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session.position();
  }

  // When the session's lease expires, according to the store.
  static int64_t until(TestServer& test, const std::string& id) {
    const std::string digest = (*test.server.models().find({}, ""))->state_digest;
    const auto record = test.server.context().kept->store().look(record_key(digest, "", id));
    return record.ok() && *record ? (*record)->until : 0;
  }

  // The files of the store whose names end with `end`.
  std::vector<std::filesystem::path> files(const std::string& end) const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/store")) {
      if (entry.path().extension() == end) found.push_back(entry.path());
    }
    return found;
  }

  const TempDir folder_;
  ServerOptions options_;
};

TEST_F(StoredSessions, ContinueOnAnyServerWithTheSameBits) {
  TestServer expected(served_bundle(small_symbol_spec(), 1));
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(expected.create("a").ok());
  ASSERT_TRUE(one->create("a").ok());
  for (int turn = 0; turn < 6; ++turn) {
    const auto request = in_session("a", {turn % 3, 1});
    const Generated there = expected.generate(request);
    TestServer& test = turn % 4 < 2 ? *two : *one;  // two turns in a row on each
    const Generated found = test.generate(request);
    ASSERT_TRUE(found.status.ok()) << found.status.error_message();
    EXPECT_EQ(found.values, there.values) << turn;
    EXPECT_EQ(found.log_probs, there.log_probs) << turn;
    EXPECT_EQ(found.started.position(), there.started.position());
  }
  EXPECT_EQ(files(".state").size(), 1U);
  EXPECT_EQ(position(*one, "a"), position(expected, "a"));
  EXPECT_EQ(position(*two, "a"), position(expected, "a"));
}

TEST_F(StoredSessions, ContinueAfterARestart) {
  TestServer expected(served_bundle(small_symbol_spec(), 1));
  std::string made;
  for (int start = 0; start < 3; ++start) {
    const auto test = server();
    v1::GenerateRequest first = generate_request({1, 2}, 4, 3);
    first.set_keep(true);
    const auto request = start == 0 ? first : in_session(made, {1});
    const Generated found = test->generate(request);
    ASSERT_TRUE(found.status.ok()) << found.status.error_message();
    if (start == 0) made = found.started.session();
    v1::GenerateRequest same = request;
    ASSERT_TRUE(start > 0 || expected.create(made).ok());
    same.mutable_origin()->set_session(made);
    EXPECT_EQ(found.values, expected.generate(same).values) << start;
  }
}

TEST_F(StoredSessions, ASequenceThatIsRepeatedOnAnotherServerIsNotLost) {
  v1::GenerateRequest request = generate_request({1, 2}, 4, 3);
  request.set_keep(true);
  request.set_request_id("again");
  const auto one = server();
  const Generated first = one->generate(request);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(one->generate(request).values, first.values) << "a retry";
  const auto two = server();
  const Generated elsewhere = two->generate(request);
  EXPECT_EQ(elsewhere.values, first.values) << elsewhere.status.error_message();
  EXPECT_EQ(elsewhere.started.session(), first.started.session());
  EXPECT_TRUE(two->generate(in_session(first.started.session(), {1})).status.ok());
  EXPECT_EQ(one->generate(request).status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(StoredSessions, WithoutAnswersOtherServersRefuseARetryAndItNeverRunsTwice) {
  options_.host.storage.answer_bytes = 0;
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  v1::GenerateRequest request = in_session("a", {1, 2});
  request.set_request_id("again");
  request.set_expected_position(0);
  const Generated first = one->generate(request);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const Generated again = one->generate(request);
  EXPECT_EQ(again.values, first.values) << again.status.error_message();
  EXPECT_EQ(position(*one, "a"), 7);
  const auto two = server();
  const Generated elsewhere = two->generate(request);
  EXPECT_EQ(elsewhere.status.error_code(), kAborted);
  EXPECT_THAT(elsewhere.status.error_message(), HasSubstr("made and saved already"));
  request.clear_expected_position();
  EXPECT_EQ(two->generate(request).status.error_code(), kAborted);
  EXPECT_EQ(position(*two, "a"), 7);
  // The server that made the call deletes the session and loads it again.
  std::latch deleted(1);
  const auto model = *one->server.models().find({}, "");
  model->engine->delete_session({"", "a"}, [&](const Status&) { deleted.count_down(); });
  deleted.wait();
  v1::GenerateRequest reads = in_session("a", {3});
  reads.set_keep(false);
  EXPECT_TRUE(one->generate(reads).status.ok());
  EXPECT_EQ(one->generate(request).status.error_code(), kAborted);
}

// Two servers reach the same position by different calls. Then the first begins a call that does
// not run, so it is the last server to have begun one.
TEST_F(StoredSessions, ACopyOfAnEarlierStateIsNotUsed) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(in_session("a", {1, 2})).status.ok());
  ASSERT_TRUE(two->remove("a").ok());
  ASSERT_TRUE(two->create("a").ok());
  ASSERT_TRUE(two->generate(in_session("a", {2, 1})).status.ok());
  v1::GenerateRequest reads = in_session("a", {3});
  reads.set_keep(false);
  const Generated expected = two->generate(reads);
  const auto model = *one->server.models().find({}, "");
  Store& store = one->server.context().kept->store();
  const std::string key = record_key(model->state_digest, "", "a");
  const std::string owner = store.replica() + "/" + model->name;
  const auto begun = store.begin(key, {.owner = owner, .request = "x", .seed = 0});
  ASSERT_EQ(begun->outcome, FenceOutcome::kOk);
  ASSERT_TRUE(*store.end(key, {owner, begun->epoch}, nullptr));
  EXPECT_EQ(one->generate(reads).log_probs, expected.log_probs);
}

TEST_F(StoredSessions, ARetryTakesOverARunningCall) {
  const auto test = server();
  ASSERT_TRUE(test->create("a").ok());
  v1::GenerateRequest request = in_session("a", {1, 2}, 1 << 20);
  request.set_request_id("again");
  grpc::ClientContext context;
  const auto reader = test->inference->Generate(&context, request);
  v1::GenerateResponse response;
  EXPECT_TRUE(reader->Read(&response));
  grpc::ClientContext retrying;
  const auto retry = test->inference->Generate(&retrying, request);
  static_cast<void>(retry->Read(&response));  // after the earlier try has released the session
  while (reader->Read(&response)) {
  }
  const grpc::Status ended = reader->Finish();
  EXPECT_EQ(ended.error_code(), kAborted);
  EXPECT_THAT(ended.error_message(), HasSubstr("was made again"));
  retrying.TryCancel();
  static_cast<void>(retry->Finish());
  expect_saved(*test);
}

TEST_F(StoredSessions, AreMadeAndDeletedForAllServers) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  EXPECT_EQ(two->create("a").error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(position(*two, "a"), 0);
  ASSERT_TRUE(two->generate(in_session("a", {1, 2})).status.ok());
  EXPECT_EQ(position(*one, "a"), 7);
  EXPECT_TRUE(one->remove("a").ok());
  EXPECT_EQ(one->remove("a").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(two->get("a").error_code(), grpc::StatusCode::NOT_FOUND) << "though it has a copy";
  EXPECT_EQ(two->generate(in_session("a", {1})).status.error_code(), grpc::StatusCode::NOT_FOUND);
  two->expect_free(8);
  EXPECT_TRUE(two->create("a").ok());
  EXPECT_EQ(position(*one, "a"), 0);
  EXPECT_TRUE(one->remove("a").ok());
  EXPECT_TRUE(two->create("a").ok()) << "of the copy that another server has deleted";
}

TEST_F(StoredSessions, ForkScoreAndSaveAsInOneServer) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(in_session("a", {1, 2})).status.ok());
  grpc::ClientContext context;
  v1::ForkSessionRequest fork;
  fork.set_id("a");
  fork.add_children("b");
  fork.add_children("c");
  v1::ForkSessionResponse forked;
  const grpc::Status status = two->sessions->ForkSession(&context, fork, &forked);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto expected = one->generate(in_session("a", {3})).values;
  EXPECT_EQ(one->generate(in_session("b", {3})).values, expected);
  v1::ScoreRequest score = score_request({3});
  score.mutable_origin()->set_session("c");
  score.set_keep(true);
  const ScoreOutcome scored = two->score({score});
  ASSERT_TRUE(scored.status.ok()) << scored.status.error_message();
  EXPECT_EQ(position(*one, "c"), 8);
  EXPECT_EQ(one->generate(in_session("c", {})).values, expected);
  // A call that only reads loads the session, too.
  v1::GenerateRequest reads = in_session("c", {4});
  reads.set_keep(false);
  const Generated here = one->generate(reads);
  EXPECT_EQ(two->generate(reads).values, here.values);
  EXPECT_EQ(position(*two, "c"), 13);
}

TEST_F(StoredSessions, AreRewoundForAllServers) {
  EngineOptions options;
  options.rewind_values = 6;
  options.rewind_every = 2;
  ModelLimits limits = kTestLimits;
  limits.slots *= static_cast<int>(1 + snapshots_of(options, limits.steps));
  TestServer one(served_bundle(small_rwkv7_spec(), 1, options, limits), options_);
  TestServer two(served_bundle(small_rwkv7_spec(), 1, options, limits), options_);
  ASSERT_TRUE(one.create("a").ok());
  ASSERT_TRUE(one.generate(in_session("a", {1, 2, 3, 4, 5, 6, 7}, 0)).status.ok());
  grpc::ClientContext context;
  v1::RewindSessionRequest request;
  request.set_id("a");
  request.set_position(5);
  v1::Session session;
  const grpc::Status status = one.sessions->RewindSession(&context, request, &session);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(position(two, "a"), 5);
  EXPECT_EQ(two.generate(in_session("a", {6, 7}, 0)).finished.at(0).usage().position(), 7);
}

TEST_F(StoredSessions, AreExportedAndImportedForAllServers) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(in_session("a", {1, 2})).status.ok());
  grpc::ClientContext context;
  v1::ExportSessionRequest request;
  request.set_id("a");
  const auto reader = two->sessions->ExportSession(&context, request);
  std::string file;
  for (v1::ExportSessionResponse response; reader->Read(&response);) file += response.data();
  ASSERT_TRUE(reader->Finish().ok());
  grpc::ClientContext importing;
  v1::Session made;
  const auto writer = two->sessions->ImportSession(&importing, &made);
  v1::ImportSessionRequest message;
  message.mutable_target()->set_id("b");
  writer->Write(message);
  message.set_data(file);
  writer->Write(message);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(one->generate(in_session("b", {3})).values, one->generate(in_session("a", {3})).values);
}

TEST_F(StoredSessions, OnlyOneCallOfASessionRunsAtATime) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  LongCall call(*one, "a");
  const Generated elsewhere = two->generate(in_session("a", {1}));
  EXPECT_EQ(elsewhere.status.error_code(), kAborted);
  EXPECT_THAT(elsewhere.status.error_message(), HasSubstr("busy with a call on another server"));
  EXPECT_EQ(elsewhere.trailing.count("grpc-retry-pushback-ms"), 1U);
  const Generated here = one->generate(in_session("a", {1}));
  EXPECT_EQ(here.status.error_code(), kAborted);
  EXPECT_THAT(here.status.error_message(), HasSubstr("busy with another call"));
  call.context.TryCancel();
  EXPECT_FALSE(call.finish().ok());
  expect_saved(*one);
  // A cancelled call has moved its session. The new position is saved.
  const int64_t at = position(*one, "a");
  EXPECT_GT(at, 0);
  EXPECT_EQ(position(*two, "a"), at);
  v1::GenerateRequest next = in_session("a", {1});
  next.set_expected_position(at + 1);
  const Generated wrong = two->generate(next);
  EXPECT_EQ(wrong.status.error_code(), kAborted);
  EXPECT_THAT(wrong.status.error_message(),
              HasSubstr("is at position " + std::to_string(at) + ", not at"));
  next.set_expected_position(at);
  EXPECT_TRUE(two->generate(next).status.ok());
}

TEST_F(StoredSessions, ACallThatWasCutOffMustBeRetriedOrAbandonedExplicitly) {
  std::string key;
  {
    const auto one = server();
    ASSERT_TRUE(one->create("a").ok());
    ASSERT_TRUE(one->generate(in_session("a", {1, 2})).status.ok());
    key = record_key((*one->server.models().find({}, ""))->state_digest, "", "a");
  }
  const auto crash = [&] {
    auto dead = DirectoryStore::open(
        {.folder = folder_.path() + "/store", .times = options_.host.storage.settings.times},
        real_clock());
    ASSERT_TRUE(dead.ok()) << dead.status().message();
    const auto begun =
        (*dead)->begin(key, {.owner = (*dead)->replica() + "/m", .request = "other", .seed = 0});
    ASSERT_EQ(begun->outcome, FenceOutcome::kOk);
  };
  crash();
  const auto two = server();
  v1::GenerateRequest request = in_session("a", {3});
  const Generated refused = two->generate(request);
  EXPECT_EQ(refused.status.error_code(), kAborted);
  EXPECT_THAT(refused.status.error_message(),
              HasSubstr("was cut off, and the session is at position 7"));
  EXPECT_THAT(refused.status.error_message(), HasSubstr("send expected_position 7"));
  request.set_expected_position(7);
  EXPECT_TRUE(two->generate(request).status.ok());
}

TEST_F(StoredSessions, ACallEndsIfItsSessionIsDeleted) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  const auto one =
      std::make_unique<TestServer>(served_bundle(small_symbol_spec(), 1), options_, clock);
  const auto two =
      std::make_unique<TestServer>(served_bundle(small_symbol_spec(), 1), options_, clock);
  ASSERT_TRUE(one->create("a").ok());
  LongCall call(*one, "a");
  for (int i = 0; i < 10; ++i) {  // the lease lasts five seconds
    clock.advance(std::chrono::seconds(1));
    one->server.tend();
    EXPECT_TRUE(eventually([&] { return until(*one, "a") > clock.unix_ms() + 3000; }));
    EXPECT_THAT(two->generate(in_session("a", {1})).status.error_message(), HasSubstr("is busy"));
  }
  EXPECT_TRUE(two->remove("a").ok());
  clock.advance(std::chrono::seconds(2));
  one->server.tend();
  const grpc::Status status = call.finish();
  EXPECT_EQ(status.error_code(), kAborted);
  EXPECT_THAT(status.error_message(), HasSubstr("was deleted"));
  expect_saved(*one);
  one->expect_free(8);
  EXPECT_EQ(two->get("a").error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StoredSessions, ADamagedStateIsRefusedAndCanBeDeleted) {
  {
    const auto one = server();
    ASSERT_TRUE(one->create("a").ok());
    ASSERT_TRUE(one->generate(in_session("a", {1, 2})).status.ok());
  }
  ASSERT_EQ(files(".state").size(), 1U);
  const std::filesystem::path path = files(".state").front();
  std::fstream state(path, std::ios::in | std::ios::out | std::ios::binary);
  state.seekp(-100, std::ios::end);
  state << 'x';
  state.close();
  const auto two = server();
  const Generated refused = two->generate(in_session("a", {3}));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("the stored state of session 'a'"));
  EXPECT_THAT(two->server.metrics_text(), HasSubstr("runnel_storage_errors_total 1\n"));
  std::filesystem::remove(path);
  const Generated missing = two->generate(in_session("a", {3}));
  EXPECT_EQ(missing.status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(missing.status.error_message(), HasSubstr("is missing"));
  EXPECT_TRUE(two->remove("a").ok());
  EXPECT_TRUE(two->create("a").ok());
}

// Options with a store in memory that fails as `before` says.
ServerOptions with_faulty_store(
    std::function<Status(const std::string&)> before, const Clock& clock = real_clock(),
    const std::shared_ptr<MemoryShelf>& shelf = std::make_shared<MemoryShelf>()) {
  ServerOptions options;
  options.host.storage.log_bytes = 0;
  const auto memory = std::make_shared<MemoryStore>(shelf, StoreSettings().times, clock);
  options.host.storage.store = std::make_shared<FaultyStore>(memory, std::move(before));
  return options;
}

TEST_F(StoredSessions, CallsThatOnlyReadLoadTheSessionOnce) {
  std::atomic<int> loads{0};
  const auto count = [&](const std::string& operation) {
    loads += operation == "load" ? 1 : 0;
    return Status();
  };
  const auto shelf = std::make_shared<MemoryShelf>();
  TestServer one(served_bundle(small_symbol_spec(), 1),
                 with_faulty_store(count, real_clock(), shelf));
  TestServer two(served_bundle(small_symbol_spec(), 1),
                 with_faulty_store(count, real_clock(), shelf));
  ASSERT_TRUE(one.create("a").ok());
  ASSERT_TRUE(one.generate(in_session("a", {1, 2})).status.ok());
  v1::GenerateRequest reads = in_session("a", {3});
  reads.set_keep(false);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(two.generate(reads).status.ok());
  EXPECT_EQ(loads, 1);
}

TEST_F(StoredSessions, ManyReadingCallsWaitForOneLoadOrAreToldToRetry) {
  constexpr int kCalls = 70;
  constexpr int kMostThatWait = 64;
  for (const bool first_changes : {false, true}) {
    std::latch answers(1);
    std::atomic<int> loads{0};
    const auto hang = [&](const std::string& operation) {
      if (operation != "load") return Status();
      ++loads;
      answers.wait();
      return Status();
    };
    TestServer two(served_bundle(small_symbol_spec(), 1), with_faulty_store(hang));
    ASSERT_TRUE(two.create("a").ok());
    ASSERT_TRUE(two.generate(in_session("a", {1, 2})).status.ok());
    const auto model = *two.server.models().find({}, "");
    two.server.context().kept->note_copy(record_key(model->state_digest, "", "a"), {});
    std::atomic<int> refused{0};
    std::atomic<int> lost{0};
    std::vector<std::jthread> calls;
    const auto call = [&](bool changes) {
      v1::GenerateRequest request = in_session("a", {3});
      request.set_keep(changes);
      const auto code = two.generate(request).status.error_code();
      refused += code == kAborted ? 1 : 0;
      lost += code == grpc::StatusCode::NOT_FOUND ? 1 : 0;
    };
    calls.emplace_back(call, first_changes);
    EXPECT_TRUE(eventually([&] { return loads == 1; }));
    for (int i = 0; i < kCalls; ++i) calls.emplace_back(call, false);
    EXPECT_TRUE(eventually([&] { return refused == kCalls - kMostThatWait; }));
    answers.count_down();
    calls.clear();
    EXPECT_EQ(lost, 0);
    EXPECT_EQ(loads, 1);
  }
}

TEST_F(StoredSessions, TheStoreIsSweptAtTheStartAndAfterAnHour) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::atomic<int> sweeps{0};
  TestServer test(served_bundle(small_symbol_spec(), 1),
                  with_faulty_store(
                      [&](const std::string& operation) {
                        sweeps += operation == "sweep" ? 1 : 0;
                        return Status();
                      },
                      clock),
                  clock);
  EXPECT_TRUE(eventually([&] { return sweeps == 1; }));
  clock.advance(std::chrono::hours(1));
  test.server.tend();
  EXPECT_TRUE(eventually([&] { return sweeps == 2; }));
}

TEST_F(StoredSessions, TheSessionIsUnchangedIfItsStateCannotBeSaved) {
  std::atomic<bool> full{false};
  TestServer test(served_bundle(small_symbol_spec(), 1),
                  with_faulty_store([&](const std::string& operation) {
                    if (!full || operation != "end") return Status();
                    return Status(Code::kResourceExhausted, "the disk is full");
                  }));
  ASSERT_TRUE(test.create("a").ok());
  const Generated first = test.generate(in_session("a", {1, 2}));
  ASSERT_TRUE(first.status.ok());
  full = true;
  const Generated lost = test.generate(in_session("a", {3}));
  EXPECT_EQ(lost.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(lost.status.error_message(), HasSubstr("could not be saved: the disk is full"));
  EXPECT_TRUE(lost.finished.empty()) << "nobody heard that the call has ended";
  EXPECT_EQ(position(test, "a"), 7);
  full = false;
  const Generated again = test.generate(in_session("a", {3}));
  EXPECT_EQ(again.values, lost.values);
  EXPECT_EQ(position(test, "a"), 13);
}

TEST_F(StoredSessions, AStoreThatDoesNotAnswerEndsTheCallInTime) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::latch answers(1);
  std::atomic<bool> hangs{false};
  std::atomic<int> hanging{0};
  TestServer test(served_bundle(small_symbol_spec(), 1),
                  with_faulty_store(
                      [&](const std::string& operation) {
                        if (!hangs || operation != "begin") return Status();
                        ++hanging;
                        answers.wait();
                        return Status();
                      },
                      clock),
                  clock);
  ASSERT_TRUE(test.create("a").ok());
  hangs = true;
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, in_session("a", {1}));
  EXPECT_TRUE(eventually([&] { return hanging == 1; }));
  clock.advance(std::chrono::seconds(1));
  test.server.tend();
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("within 1000 ms"));
  EXPECT_TRUE(test.generate(generate_request({1}, 3)).status.ok()) << "a call without a session";
  hangs = false;
  answers.count_down();
  // The call that began too late was dropped, so other calls can begin.
  EXPECT_TRUE(eventually([&] { return test.generate(in_session("a", {1, 2})).status.ok(); }));
}

TEST_F(StoredSessions, ANewSessionThatCannotBeSavedDoesNotExist) {
  std::atomic<bool> full{true};
  TestServer test(served_bundle(small_symbol_spec(), 1),
                  with_faulty_store([&](const std::string& operation) {
                    if (!full || operation != "create") return Status();
                    return Status(Code::kResourceExhausted, "the disk is full");
                  }));
  EXPECT_EQ(test.create("a").error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::GenerateRequest keep = generate_request({1}, 3);
  keep.set_keep(true);
  EXPECT_EQ(test.generate(keep).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  test.expect_free(8);
  full = false;
  EXPECT_TRUE(test.create("a").ok());
}

}  // namespace
}  // namespace runnel
