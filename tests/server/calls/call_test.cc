// Calls without a network: the endpoint only records what the call gives it.

#include "server/calls/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/account_usage.h"
#include "server/calls/generate_call.h"
#include "server/calls/scoring_call.h"
#include "server/host/kept_sessions.h"
#include "storage/memory_store.h"
#include "storage/record_key.h"
#include "tests/engine/harness.h"
#include "tests/server/test_models.h"
#include "tests/storage/faulty_store.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kTimeout = std::chrono::seconds(60);

// The state of a server with one model, which all endpoints of a test use.
struct Service {
  explicit Service(ServedModel served) {
    state.stall_timeout = std::chrono::milliseconds(100);
    EXPECT_TRUE(state.models.add(std::move(served)).ok());
    state.models.open();
  }
  std::shared_ptr<const ServedModel> model() const { return *state.models.find({}, ""); }
  int64_t sessions_free() const { return model()->engine->stats().sessions_free; }
  // Advances the clock by `time`, then applies the time limits of calls.
  void tend_after(Duration time) {
    clock.advance(time);
    state.calls.tend_all(clock.now());
  }

  std::ostringstream log_text;
  EventLog log{"debug", false, log_text};
  Clock clock{TimePoint(std::chrono::hours(1))};
  ServerContext state{log, clock};
};

Caller caller_named(const std::string& name) {
  Caller caller;
  caller.name = name;
  return caller;
}

CallStart call_start(Result<Caller> caller) {
  return {.rpc = "Test", .peer = "here", .caller = std::move(caller)};
}

// The status with which a call ended, for a thread that waits for the end.
class Ending {
 public:
  void set(const Status& status) {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(status_) << "a call ends once";
    status_ = status;
    came_.notify_all();
  }
  bool has_come() const {
    std::lock_guard lock(mutex_);
    return status_.has_value();
  }
  Status wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(came_.wait_for(lock, kTimeout, [&] { return status_.has_value(); }));
    return status_.value_or(Status(Code::kInternal, "the call did not end"));
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::optional<Status> status_;
};

// Takes each event at once inside write(), or later when the test says so.
class GenerateDoor final : public GenerateSink {
 public:
  explicit GenerateDoor(Service& service, Result<Caller> caller = Caller())
      : call(GenerateCall::make(service.state, call_start(std::move(caller)), *this)) {
    call->enter();
  }
  ~GenerateDoor() override { call->leave(); }

  void write(const GenerateEvent& event) override {
    if (const auto* begin = std::get_if<Started>(&event)) started = *begin;
    if (const auto* end = std::get_if<Finished>(&event)) finished.push_back(*end);
    if (const auto* some = std::get_if<SampledValues>(&event)) {
      for (const ValueRun& run : some->runs) {
        values[run.sample].insert(values[run.sample].end(), run.values.begin(), run.values.end());
        text[run.sample] += run.text;
      }
    }
    if (takes) {
      std::thread([call = call] { call->written(true); }).detach();
    } else {
      holds = true;
    }
  }
  void finish(const Status& status) override { ending.set(status); }
  void cut_off() override { ++cuts; }

  std::atomic<bool> takes{true}, holds{false};
  std::atomic<int> cuts{0};
  std::optional<Started> started;
  std::map<int, std::vector<int32_t>> values;
  std::map<int, std::string> text;
  std::vector<Finished> finished;
  Ending ending;
  const std::shared_ptr<GenerateCall> call;
};

GenerateRequest request_for(int64_t max_values) {
  GenerateRequest request;
  request.prompt = {1};
  request.max_values = max_values;
  request.seed = 3;
  return request;
}

// The position of a session that no call uses; -1 while one does.
int64_t position_of(const Service& service, const SessionKey& key) {
  std::promise<int64_t> position;
  service.model()->engine->get_session(key, [&](const Result<SessionInfo>& session) {
    const bool is_idle = session.ok() && session->state == SessionPhase::kIdle;
    position.set_value(is_idle ? session->position : -1);
  });
  return position.get_future().get();
}

// A thread that ends calls could otherwise use an endpoint that does not hold its call yet.
TEST(GenerateCall, IsLiveOnlyAfterItsDoorEntersIt) {
  Service service(served_fake("fake"));
  GenerateDoor door(service);
  EXPECT_EQ(service.state.calls.count(), 1);
  const auto made = GenerateCall::make(service.state, call_start(Caller()), door);
  EXPECT_EQ(service.state.calls.count(), 1);
}

TEST(GenerateCall, WritesEventsAndEnds) {
  ServedModel served = served_fake("fake");
  served.tokenizer = number_tokenizer();
  Service service(std::move(served));
  GenerateDoor door(service);
  door.call->start(service.model(), request_for(50));
  EXPECT_TRUE(door.ending.wait().ok());
  ASSERT_TRUE(door.started);
  EXPECT_EQ(door.started->seed, 3U);
  EXPECT_EQ(door.values.at(0), FakeModel::expected(fake_spec(), {1}, 3, 0, 50));
  std::string text;
  for (const int32_t value : door.values.at(0)) text += "<" + std::to_string(value) + ">";
  EXPECT_EQ(door.text.at(0), text);
  EXPECT_EQ(door.finished.size(), 1U);
  EXPECT_THAT(service.log_text.str(),
              HasSubstr("debug begin rpc=Test peer=here caller=\"\" model=fake"));
  EXPECT_THAT(service.log_text.str(),
              HasSubstr("info call rpc=Test model=fake caller=\"\" peer=here "
                        "code=OK given=1 sampled=50 queue_seconds="));
}

TEST(GenerateCall, SessionsBelongToTheirCaller) {
  Service service(served_fake("fake"));
  GenerateRequest request = request_for(5);
  request.keep = true;
  GenerateDoor ada(service, caller_named("ada"));
  ada.call->start(service.model(), request);
  EXPECT_TRUE(ada.ending.wait().ok());
  request = request_for(5);
  request.session = ada.started->session;
  GenerateDoor bob(service, caller_named("bob"));
  bob.call->start(service.model(), request);
  EXPECT_EQ(bob.ending.wait().code(), Code::kNotFound);
  GenerateDoor again(service, caller_named("ada"));
  again.call->start(service.model(), request);
  EXPECT_TRUE(again.ending.wait().ok());
}

TEST(GenerateCall, CallsOfAnAccountAreCountedFromAdmissionToTheirEnd) {
  Service service(served_fake("fake"));
  Caller caller;
  caller.account = "ada";
  caller.limits.calls = 1;
  caller.usage = std::make_shared<AccountUsage>();
  GenerateDoor first(service, caller);
  ASSERT_TRUE(first.call->admit().ok());
  first.takes = false;
  first.call->start(service.model(), request_for(1 << 20));
  ASSERT_TRUE(eventually([&] { return first.holds.load(); }));
  GenerateDoor second(service, caller);
  const Status refused = second.call->admit();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "ada has used up its quota: calls is 1; try again when one has ended");
  EXPECT_TRUE(refused.retry_after());
  second.call->refuse(refused);
  EXPECT_EQ(second.ending.wait(), refused);
  first.call->cancel();
  first.call->written(false);
  EXPECT_EQ(first.ending.wait().code(), Code::kCancelled);
  GenerateDoor third(service, caller);
  EXPECT_TRUE(third.call->admit().ok()) << "whoever hears of the end may call again";
  third.call->cancel();
  EXPECT_EQ(third.ending.wait().code(), Code::kCancelled);
}

TEST(GenerateCall, ACallerWithoutAKeyIsRefused) {
  Service service(served_fake("fake"));
  GenerateDoor door(service, Result<Caller>(Status(Code::kUnauthenticated, "no key")));
  const Status status = door.call->admit();
  EXPECT_EQ(status.message(), "no key");
  door.call->refuse(status);
  EXPECT_EQ(door.ending.wait().code(), Code::kUnauthenticated);
}

TEST(GenerateCall, RefusalsEndTheCallThroughItsSink) {
  Service service(served_fake("fake"));
  GenerateDoor door(service);
  GenerateRequest request = request_for(5);
  request.prompt = {100};
  door.call->start(service.model(), request);
  EXPECT_EQ(door.ending.wait().code(), Code::kInvalidArgument);
  GenerateDoor unread(service);
  unread.call->refuse(invalid_argument("the request does not parse"));
  EXPECT_EQ(unread.ending.wait().message(), "the request does not parse");
  EXPECT_THAT(service.log_text.str(),
              HasSubstr("info call rpc=Test model=\"\" caller=\"\" peer=here "
                        "code=INVALID_ARGUMENT given=0 sampled=0 seconds="));
}

TEST(GenerateCall, CancellingFreesTheState) {
  Service service(served_fake("fake"));
  GenerateDoor door(service);
  door.takes = false;
  door.call->start(service.model(), request_for(1 << 20));
  ASSERT_TRUE(eventually([&] { return door.holds.load(); }));
  ASSERT_TRUE(eventually([&] { return service.sessions_free() == 7; }));
  door.call->cancel();
  EXPECT_TRUE(eventually([&] { return service.sessions_free() == 8; }));
  EXPECT_FALSE(door.ending.has_come()) << "an event is still out";
  door.call->written(false);
  EXPECT_EQ(door.ending.wait().code(), Code::kCancelled);
}

TEST(GenerateCall, ACallCancelledBeforeItsStartUsesNoState) {
  Service service(served_fake("fake"));
  GenerateDoor door(service);
  door.call->cancel();
  EXPECT_EQ(door.ending.wait().code(), Code::kCancelled);
  door.call->start(service.model(), request_for(1 << 20));
  EXPECT_TRUE(eventually([&] { return service.sessions_free() == 8; }));
}

// With a store, nobody could find or evict the session.
TEST(GenerateCall, ASessionWhoseNameNobodyHasHeardEndsWithItsCall) {
  Service service(served_fake("fake"));
  const auto store = std::make_shared<MemoryStore>(std::make_shared<MemoryShelf>(),
                                                   StoreSettings().times, service.clock);
  service.state.kept = std::make_unique<KeptSessions>(service.state, store, StorageOptions());
  const int64_t slots = service.sessions_free();
  GenerateDoor other(service);
  GenerateRequest request = request_for(1 << 20);
  request.samples = static_cast<int>(slots);
  other.call->start(service.model(), request);
  ASSERT_TRUE(eventually([&] { return service.sessions_free() == 0; }));
  GenerateDoor waits(service);
  waits.takes = false;
  request = request_for(5);
  request.keep = true;
  request.max_queue_time = std::chrono::hours(1);
  waits.call->start(service.model(), request);
  ASSERT_TRUE(eventually([&] { return waits.holds.load(); }));
  other.call->cancel();
  EXPECT_EQ(other.ending.wait().code(), Code::kCancelled);
  ASSERT_TRUE(eventually([&] { return service.sessions_free() == slots - 1; }));
  EXPECT_FALSE(waits.started) << "only its place in the queue was written";
  waits.call->cancel();
  waits.call->written(false);
  EXPECT_EQ(waits.ending.wait().code(), Code::kCancelled);
  EXPECT_TRUE(eventually([&] { return service.sessions_free() == slots; }));
}

// A session in a store, at position 3.
class SavedCalls : public ::testing::Test {
 protected:
  SavedCalls() {
    const auto memory = std::make_shared<MemoryStore>(std::make_shared<MemoryShelf>(),
                                                      StoreSettings().times, service_.clock);
    store_ = std::make_shared<FaultyStore>(memory, [this](const std::string& operation) {
      return operation == "end" && save_ ? save_() : Status();
    });
    service_.state.kept = std::make_unique<KeptSessions>(service_.state, store_, StorageOptions());
    GenerateRequest request = request_for(2);
    request.keep = true;
    GenerateDoor door(service_);
    door.call->start(service_.model(), request);
    EXPECT_TRUE(door.ending.wait().ok());
    id_ = door.started->session;
  }

  Record record() const {
    const auto found = store_->look(record_key(service_.model()->state_digest, "", id_));
    return found.ok() && *found ? **found : Record();
  }

  // Makes a call on the session. Returns while the door writes the values, of which all are in one
  // group, because the model waits until the door writes Started.
  void write_values(GenerateDoor& door) {
    door.takes = false;
    is_stopped_ = true;
    GenerateRequest request = request_for(5);
    request.session = id_;
    request.request_id = "five";
    door.call->start(service_.model(), request);
    EXPECT_TRUE(eventually([&] { return door.holds.load(); }));
    EXPECT_TRUE(door.started && door.values.empty());
    is_stopped_ = false;
    is_stopped_.notify_all();
    EXPECT_TRUE(eventually([&] { return position_of(service_, {"", id_}) == 9; }));
    EXPECT_EQ(record().position, 3);
    door.holds = false;
    door.call->written(true);
    EXPECT_TRUE(eventually([&] { return door.holds.load(); }));
    EXPECT_EQ(door.values[0].size(), 5U);
  }

  std::atomic<bool> is_stopped_{false};  // the model
  std::function<Status()> save_;         // called before a call is saved
  Service service_{served_fake("fake", [this] { is_stopped_.wait(true); })};
  std::shared_ptr<Store> store_;
  std::string id_;
};

TEST_F(SavedCalls, AreSavedWhileTheirLastValuesAreWritten) {
  GenerateDoor door(service_);
  write_values(door);
  EXPECT_TRUE(eventually([&] { return record().position == 9; }));
  EXPECT_TRUE(door.finished.empty());
  door.takes = true;
  door.call->written(true);
  EXPECT_TRUE(door.ending.wait().ok());
  EXPECT_EQ(door.finished.size(), 1U);
}

TEST_F(SavedCalls, HaveTheirAnswerEvenIfTheyAreCancelledInTheMeantime) {
  std::latch goes_on(1);
  save_ = [&] { return goes_on.wait(), Status(); };
  GenerateDoor door(service_);
  write_values(door);
  door.call->cancel();
  door.call->written(false);
  EXPECT_EQ(door.ending.wait().code(), Code::kCancelled);
  EXPECT_EQ(record().position, 3);
  goes_on.count_down();
  EXPECT_TRUE(eventually([&] { return record().position == 9; }));
  EXPECT_TRUE(record().answer.has_ended);
  EXPECT_FALSE(record().answer.text.empty());
}

TEST_F(SavedCalls, EndAsUsualIfTheServerEndsThemInTheMeantime) {
  std::latch goes_on(1);
  save_ = [&] { return goes_on.wait(), Status(); };
  GenerateDoor door(service_);
  write_values(door);
  door.call->end({Code::kUnavailable, "the server stops"});
  door.takes = true;
  door.call->written(true);
  EXPECT_FALSE(door.ending.has_come());
  goes_on.count_down();
  EXPECT_TRUE(door.ending.wait().ok());
  EXPECT_EQ(door.finished.size(), 1U);
  EXPECT_EQ(record().position, 9);
}

TEST_F(SavedCalls, HaveNoEndIfTheyCannotBeSaved) {
  save_ = [] { return Status(Code::kResourceExhausted, "the disk is full"); };
  GenerateDoor door(service_);
  write_values(door);
  door.takes = true;
  door.call->written(true);
  EXPECT_EQ(door.ending.wait().code(), Code::kResourceExhausted);
  EXPECT_TRUE(door.finished.empty());
  EXPECT_EQ(record().position, 3);
}

TEST(GenerateCall, AReaderThatNeverReadsIsCutOff) {
  Service service(served_fake("fake"));
  GenerateDoor door(service);
  door.takes = false;
  door.call->start(service.model(), request_for(1 << 20));
  ASSERT_TRUE(eventually([&] { return door.holds.load(); }));
  service.tend_after(std::chrono::milliseconds(199));
  EXPECT_EQ(door.cuts, 0);
  service.tend_after(std::chrono::milliseconds(1));
  EXPECT_EQ(door.cuts, 1);
  door.call->written(false);
  EXPECT_EQ(door.ending.wait().code(), Code::kCancelled);
  service.tend_after(std::chrono::hours(1));
  EXPECT_EQ(door.cuts, 1);
}

TEST(GenerateCall, ACallEndedByTheServerDeliversItsSampledValues) {
  Service service(served_fake("fake"));
  GenerateDoor door(service);
  door.takes = false;
  door.call->start(service.model(), request_for(1 << 20));
  ASSERT_TRUE(eventually([&] { return door.holds.load(); }));
  ASSERT_TRUE(eventually([&] { return service.model()->engine->stats().values_sampled > 100; }));
  service.state.calls.end_all({Code::kUnavailable, "the server is shutting down"});
  EXPECT_TRUE(eventually([&] { return service.sessions_free() == 8; }));
  door.takes = true;
  door.call->written(true);
  EXPECT_EQ(door.ending.wait().message(), "the server is shutting down");
  const auto& values = door.values.at(0);
  EXPECT_EQ(std::ssize(values), service.model()->engine->stats().values_sampled);
  EXPECT_EQ(values, FakeModel::expected(fake_spec(), {1}, 3, 0, static_cast<int>(values.size())));
  EXPECT_THAT(service.log_text.str(), HasSubstr(" code=UNAVAILABLE given=1 sampled="));
}

TEST(GenerateCall, CancelsAtRandomTimesEndTheCallOnce) {
  Service service(served_fake("fake"));
  for (int i = 0; i < 200; ++i) {
    GenerateDoor door(service);
    // Spins, because a thread that sleeps on a busy machine would wake long after the call's end.
    std::thread canceller(
        [&, moment = std::chrono::steady_clock::now() + std::chrono::microseconds(2 * i)] {
          while (std::chrono::steady_clock::now() < moment) {
          }
          door.call->cancel();
          service.state.calls.end_all({Code::kUnavailable, "over"});
        });
    door.call->start(service.model(), request_for(i));
    static_cast<void>(door.ending.wait());  // the end or the cancel may come first
    canceller.join();
  }
  EXPECT_TRUE(eventually([&] { return service.sessions_free() == 8; }));
  EXPECT_EQ(service.state.calls.count(), 0);
}

// Sends the given chunks, then closes.
class ScoreDoor final : public ScoreSink {
 public:
  ScoreDoor(Service& service, std::vector<std::vector<int32_t>> chunks)
      : service_(service),
        chunks_(std::move(chunks)),
        call(ScoringCall::make(service.state, call_start(caller_named("ada")), *this)) {
    call->enter();
  }
  ~ScoreDoor() override { call->leave(); }

  void read() override {
    ++reads;
    if (silent) return;
    std::thread([this, call = call] {
      if (!call->arrived()) return;
      if (sent_ == chunks_.size()) return call->close();
      if (sent_ == 0) {
        if (Status s = call->open(service_.model(), {}, false, false, Duration(0)); !s.ok())
          return call->refuse(s);
      }
      call->feed(chunks_[sent_++]);
    }).detach();
  }
  void write(const ScoreEvent& event) override {
    if (const auto* some = std::get_if<ScoredValues>(&event)) {
      positions.push_back(some->position);
      log_probs.insert(log_probs.end(), some->log_probs.begin(), some->log_probs.end());
    } else {
      total = std::get<ScoreTotal>(event);
    }
    std::thread([call = call] { call->written(true); }).detach();
  }
  void finish(const Status& status) override { ending.set(status); }
  void cut_off() override {}

 private:
  Service& service_;
  const std::vector<std::vector<int32_t>> chunks_;
  size_t sent_ = 0;

 public:
  std::atomic<bool> silent{false};
  std::atomic<int> reads{0};
  std::vector<int64_t> positions;
  std::vector<float> log_probs;
  std::optional<ScoreTotal> total;
  Ending ending;
  const std::shared_ptr<ScoringCall> call;
};

TEST(ScoringCall, AnswersEveryChunkAndGivesATotal) {
  Service service(served_fake("fake"));
  ScoreDoor door(service, {{5}, {6, 7}, {8}});
  door.call->start();
  EXPECT_TRUE(door.ending.wait().ok());
  EXPECT_THAT(door.positions, ElementsAre(1, 1, 3));
  ASSERT_EQ(door.log_probs.size(), 3U);
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(door.log_probs[i], FakeModel::expected_log_prob({5, 6, 7, 8}, i + 1));
    sum += door.log_probs[i];
  }
  ASSERT_TRUE(door.total);
  EXPECT_EQ(door.total->values, 3);
  EXPECT_DOUBLE_EQ(door.total->log_prob, sum);
  EXPECT_EQ(door.total->numerics, "fake");
  EXPECT_TRUE(eventually([&] { return service.sessions_free() == 8; }));
}

TEST(ScoringCall, WithoutAChunkItIsRefused) {
  Service service(served_fake("fake"));
  ScoreDoor door(service, {});
  door.call->start();
  EXPECT_THAT(door.ending.wait().message(), HasSubstr("the call has no message"));
}

TEST(ScoringCall, ACallWithoutRequestsIsAborted) {
  Service service(served_fake("fake"));
  ScoreDoor door(service, {{1, 2}});
  door.silent = true;
  door.call->start();
  EXPECT_EQ(door.reads, 1);
  service.tend_after(std::chrono::milliseconds(99));
  EXPECT_FALSE(door.ending.has_come());
  service.tend_after(std::chrono::milliseconds(1));
  EXPECT_EQ(door.ending.wait().code(), Code::kAborted);
  EXPECT_FALSE(door.call->arrived()) << "a chunk that comes too late is not taken";
}

TEST(ScoringCall, CanBeEndedWhileItReads) {
  Service service(served_fake("fake"));
  ScoreDoor door(service, {});
  door.silent = true;
  door.call->start();
  service.state.calls.end_all({Code::kUnavailable, "over"});
  EXPECT_EQ(door.ending.wait().message(), "over");
}

TEST(ScoringCall, IsRefusedWhileTheServerDrains) {
  Service service(served_fake("fake"));
  service.state.draining = true;
  ScoreDoor door(service, {{1}});
  door.call->start();
  EXPECT_EQ(door.ending.wait().code(), Code::kUnavailable);
  EXPECT_EQ(door.reads, 0);
}

}  // namespace
}  // namespace runnel
