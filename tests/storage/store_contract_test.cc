// The contract of storage/store.h, tested for every store.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "storage/directory_store.h"
#include "storage/memory_store.h"
#include "storage/record_key.h"
#include "storage/redis_store.h"
#include "tests/base/test_files.h"
#include "tests/storage/record_keys.h"
#include "tests/storage/redis_server.h"

namespace runnel {
namespace {

constexpr StoreTimes kTimes = {.ttl_ms = 100000, .lease_ms = 300, .timeout_ms = 60000};
const std::string kList = record_list("model", "");

using ::testing::ElementsAre;
using ::testing::IsEmpty;

enum class Kind { kMemory, kDirectory, kRedis };

// A state that contains its position.
std::string state_at(int64_t position) {
  std::string text = std::to_string(position);
  return text + std::string(100 - text.size(), '.');
}

Snapshot snapshot_at(int64_t position) {
  return {position, [text = state_at(position)]() mutable {
            const std::string piece = text.substr(0, 33);
            text.erase(0, 33);
            return piece;
          }};
}

class StoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  static void TearDownTestSuite() { redis_.reset(); }

  void SetUp() override {
    if (GetParam() != Kind::kRedis) return;
    if (!RedisServer::is_installed()) GTEST_SKIP() << RedisServer::kMissing;
    if (redis_ == nullptr) redis_ = std::make_unique<RedisServer>();
    ASSERT_TRUE(redis_->ask({"FLUSHALL"}, RespKind::kText).ok());
  }

  // Opens the store as another server.
  std::shared_ptr<Store> open() { return open(clock_); }
  // Opens the store as a server whose machine has this clock.
  std::shared_ptr<Store> open(const Clock& clock) {
    if (GetParam() == Kind::kMemory) return std::make_shared<MemoryStore>(shelf_, kTimes, clock);
    if (GetParam() == Kind::kRedis) {
      auto store = RedisStore::open({.url = redis_->url()}, kTimes, clock);
      EXPECT_TRUE(store.ok()) << store.status().message();
      return std::move(*store);
    }
    auto store = DirectoryStore::open(
        {.folder = folder_.path("store"), .sync = SyncMode::kNone, .times = kTimes}, clock);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }

  static std::string owner(const Store& store) { return store.replica() + "/m"; }

  static Begun begin(Store& store, const std::string& request,
                     std::optional<int64_t> expected = {}) {
    const auto begun = store.begin(
        kKey,
        {.owner = owner(store), .request = request, .seed = 1, .expected_position = expected});
    EXPECT_TRUE(begun.ok()) << begun.status().message();
    return begun.ok() ? *begun : Begun();
  }

  static bool end(Store& store, int64_t epoch, std::optional<int64_t> position = {}) {
    const Snapshot snapshot = snapshot_at(position.value_or(0));
    const auto ended = store.end(kKey, {owner(store), epoch}, position ? &snapshot : nullptr);
    EXPECT_TRUE(ended.ok()) << ended.status().message();
    return ended.ok() && *ended;
  }

  static bool log(Store& store, int64_t epoch, int64_t position) {
    const LogEntry entry = {position, "to " + std::to_string(position)};
    const auto ended = store.log(kKey, {owner(store), epoch}, entry);
    EXPECT_TRUE(ended.ok()) << ended.status().message();
    return ended.ok() && *ended;
  }

  static bool settle(Store& store, int64_t saved, int64_t position) {
    const auto settled = store.settle(kKey, saved, snapshot_at(position));
    EXPECT_TRUE(settled.ok()) << settled.status().message();
    return settled.ok() && *settled;
  }

  static void create(Store& store, int64_t position = 0) {
    const Snapshot snapshot = snapshot_at(position);
    const auto made = store.create(kKey, {owner(store)}, &snapshot);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_TRUE(*made);
  }

  // Makes a session with this id in the list of this owner.
  static void create_listed(Store& store, const std::string& user, const std::string& id) {
    const NewSession session = {
        .owner = owner(store), .list = record_list("model", user), .id = id};
    const auto made = store.create(record_key("model", user, id), session, nullptr);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_NE(*made, 0);
  }

  static std::vector<std::string> list(Store& store, const std::string& after, size_t most) {
    const auto ids = store.list(kList, after, most);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? *ids : std::vector<std::string>();
  }

  static std::string load(Store& store) {
    const auto record = store.look(kKey);
    EXPECT_TRUE(record.ok() && *record);
    std::string text;
    const Status loaded = store.load(kKey, **record, [&](std::span<const std::byte> bytes) {
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return Status();
    });
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    return text;
  }

  void advance(int64_t ms) { clock_.advance(std::chrono::milliseconds(ms)); }

  void check_race(Duration skew);

  Clock clock_{TimePoint(std::chrono::hours(1))};
  const TestFolder folder_;
  const std::shared_ptr<MemoryShelf> shelf_ = std::make_shared<MemoryShelf>();
  static inline std::unique_ptr<RedisServer> redis_;  // shared by all tests in this process
};

TEST_P(StoreContract, AnotherServerContinuesAtTheEndOfACall) {
  const auto one = open();
  const auto two = open();
  create(*one);
  const Begun first = begin(*one, "x");
  ASSERT_EQ(first.outcome, FenceOutcome::kOk);
  EXPECT_TRUE(end(*one, first.epoch, 5));
  const Begun second = begin(*two, "y");
  ASSERT_EQ(second.outcome, FenceOutcome::kOk);
  EXPECT_GT(second.epoch, first.epoch);
  EXPECT_EQ(second.before.position, 5);
  EXPECT_EQ(second.before.owner, owner(*one));
  EXPECT_EQ(load(*two), state_at(5));
  EXPECT_TRUE(end(*two, second.epoch));
  EXPECT_EQ(load(*one), state_at(5)) << "a call that has changed nothing";
}

TEST_P(StoreContract, ALogFollowsTheStateUntilAStateReplacesBoth) {
  const auto one = open();
  const auto two = open();
  create(*one, 2);
  const int64_t first = begin(*one, "x").epoch;
  EXPECT_TRUE(log(*one, first, 5));
  EXPECT_FALSE(log(*one, first, 6)) << "it has ended";
  const int64_t second = begin(*two, "y", 5).epoch;
  EXPECT_FALSE(settle(*one, first, 5)) << "a call runs";
  EXPECT_TRUE(log(*two, second, 9));
  Record record = **one->look(kKey);
  EXPECT_EQ(record.position, 9);
  EXPECT_EQ(record.state_at, 2);
  EXPECT_EQ(record.saved, second);
  EXPECT_EQ(record.log, (std::vector<std::string>{"to 5", "to 9"}));
  EXPECT_EQ(load(*one), state_at(2));
  EXPECT_FALSE(settle(*one, first, 5)) << "a later call was saved";
  EXPECT_TRUE(end(*one, begin(*one, "z").epoch)) << "and one that has changed nothing";
  EXPECT_TRUE(settle(*two, second, 9));
  EXPECT_FALSE(settle(*two, second, 9)) << "there is no log any more";
  record = **one->look(kKey);
  EXPECT_TRUE(record.log.empty());
  EXPECT_EQ(record.state, second);
  EXPECT_EQ(record.state_at, 9);
  EXPECT_EQ(load(*one), state_at(9));
}

TEST_P(StoreContract, AStateAtACallsEndReplacesTheLog) {
  const auto store = open();
  ASSERT_TRUE(*store->create(kKey, {owner(*store)}, nullptr));
  EXPECT_TRUE(log(*store, begin(*store, "x").epoch, 5));
  EXPECT_TRUE(end(*store, begin(*store, "y").epoch, 8));
  EXPECT_TRUE((*store->look(kKey))->log.empty());
  EXPECT_EQ(load(*store), state_at(8));
  ASSERT_TRUE(*store->remove(kKey));
  EXPECT_FALSE(log(*store, 1, 9));
  EXPECT_FALSE(settle(*store, 1, 9));
}

TEST_P(StoreContract, WithoutARecordThereIsNothing) {
  const auto store = open();
  EXPECT_EQ(begin(*store, "x").outcome, FenceOutcome::kNone);
  EXPECT_FALSE(store->look(kKey)->has_value());
  EXPECT_FALSE(*store->remove(kKey));
  EXPECT_FALSE(*store->renew(kKey, {owner(*store), 1}));
  EXPECT_FALSE(end(*store, 1, 3));
}

TEST_P(StoreContract, AnEmptySessionHasNoState) {
  const auto store = open();
  ASSERT_TRUE(*store->create(kKey, {owner(*store)}, nullptr));
  EXPECT_FALSE(*store->create(kKey, {owner(*store)}, nullptr)) << "there is one";
  EXPECT_EQ((*store->look(kKey))->state, 0);
  const Begun begun = begin(*store, "x", 0);
  ASSERT_EQ(begun.outcome, FenceOutcome::kOk);
  EXPECT_TRUE(end(*store, begun.epoch, 2));
  EXPECT_EQ(load(*store), state_at(2));
}

TEST_P(StoreContract, ARunningCallExcludesOthersUntilItsLeaseExpires) {
  const auto one = open();
  const auto two = open();
  create(*one, 4);
  const Begun first = begin(*one, "x");
  Begun other = begin(*two, "y");
  EXPECT_EQ(other.outcome, FenceOutcome::kBusy);
  EXPECT_EQ(other.left_ms, kTimes.lease_ms);
  advance(200);
  EXPECT_TRUE(*one->renew(kKey, {owner(*one), first.epoch}));
  advance(200);
  EXPECT_EQ(begin(*two, "y").outcome, FenceOutcome::kBusy) << "it was renewed";
  advance(100);
  other = begin(*two, "y");
  EXPECT_EQ(other.outcome, FenceOutcome::kCutOff);
  EXPECT_EQ(other.before.position, 4);
  EXPECT_EQ(begin(*two, "y", 5).outcome, FenceOutcome::kElsewhere);
  other = begin(*two, "y", 4);
  EXPECT_EQ(other.outcome, FenceOutcome::kOk);
  EXPECT_FALSE(*one->renew(kKey, {owner(*one), first.epoch}));
  EXPECT_FALSE(end(*one, first.epoch, 9)) << "a late writer";
  EXPECT_FALSE(end(*one, other.epoch, 9)) << "of another's epoch";
  EXPECT_EQ(load(*two), state_at(4));
  EXPECT_TRUE(end(*two, other.epoch, 6));
  EXPECT_FALSE(end(*two, other.epoch, 7)) << "it has ended";
  EXPECT_EQ(load(*one), state_at(6));
  EXPECT_FALSE(*two->renew(kKey, {owner(*two), other.epoch})) << "the call is over";
  EXPECT_EQ(begin(*one, "z").outcome, FenceOutcome::kOk);
}

TEST_P(StoreContract, ARetryOfACutOffCallHasItsSeed) {
  const auto one = open();
  const auto two = open();
  create(*one);
  ASSERT_EQ(one->begin(kKey, {.owner = owner(*one), .request = "x", .seed = 42})->seed, 42);
  advance(kTimes.lease_ms);
  const auto again = two->begin(kKey, {.owner = owner(*two), .request = "x", .seed = 7});
  EXPECT_EQ(again->outcome, FenceOutcome::kOk);
  EXPECT_EQ(again->seed, 42);
}

TEST_P(StoreContract, ACallWithAnIdIsKnownAfterItWasSaved) {
  const auto one = open();
  const auto two = open();
  create(*one);
  const std::string named = std::string(kNamedCall) + "x";
  Begun begun = begin(*one, named, 0);
  EXPECT_FALSE(begun.repeats);
  EXPECT_TRUE(end(*one, begun.epoch));
  begun = begin(*one, named, 0);
  EXPECT_FALSE(begun.repeats) << "it has changed nothing";
  EXPECT_TRUE(end(*one, begun.epoch, 5));
  begun = begin(*two, named, 0);
  EXPECT_EQ(begun.outcome, FenceOutcome::kOk) << "whatever its position";
  EXPECT_TRUE(begun.repeats);
  EXPECT_TRUE(end(*two, begun.epoch));
  EXPECT_EQ(begin(*two, std::string(kNamedCall) + "y", 0).outcome, FenceOutcome::kElsewhere);
  begun = begin(*two, "z", 5);
  EXPECT_TRUE(end(*two, begun.epoch, 6));
  EXPECT_EQ(begin(*one, named, 0).outcome, FenceOutcome::kElsewhere)
      << "another call came after it";
  begun = begin(*one, "z");
  EXPECT_FALSE(begun.repeats) << "the same request without an id is another call";
}

TEST_P(StoreContract, TheLastCallHasItsAnswerUntilAnotherOneIsSaved) {
  const auto one = open();
  const auto two = open();
  const std::string named = std::string(kNamedCall) + "x";
  const SavedAnswer made = {.has_ended = true, .text = "made"};
  const SavedAnswer logged = {.has_ended = true, .text = "logged"};
  const SavedAnswer stopped = {.has_ended = false, .text = "stopped"};
  const Snapshot snapshot = snapshot_at(3);
  ASSERT_NE(*one->create(kKey, {owner(*one), named, made}, &snapshot), 0);
  EXPECT_EQ(begin(*two, named).before.answer, made) << "of the call that made the session";
  Holder holder = {.owner = owner(*two), .epoch = begin(*two, "y", 3).epoch, .answer = logged};
  EXPECT_TRUE(*two->end(kKey, holder, nullptr));
  EXPECT_EQ((*one->look(kKey))->answer, made) << "a call that was not saved";
  holder.epoch = begin(*two, named, 3).epoch;
  EXPECT_TRUE(*two->log(kKey, holder, {5, "entry"}));
  EXPECT_EQ((*one->look(kKey))->answer, logged);
  EXPECT_TRUE(settle(*two, holder.epoch, 5));
  EXPECT_EQ((*one->look(kKey))->answer, logged) << "a state in place of the log";
  const Snapshot later = snapshot_at(7);
  holder = {.owner = owner(*two), .epoch = begin(*two, named, 5).epoch, .answer = stopped};
  EXPECT_TRUE(*two->end(kKey, holder, &later));
  EXPECT_EQ((*one->look(kKey))->answer, stopped);
  EXPECT_TRUE(end(*one, begin(*one, "z").epoch, 8));
  EXPECT_EQ((*one->look(kKey))->answer, SavedAnswer()) << "of a call without an id";
}

TEST_P(StoreContract, ACallThatDoesNotRunLeavesACutOffCallInTheRecord) {
  const auto store = open();
  create(*store);
  const Begun cut_off = begin(*store, "x");
  const Begun other = begin(*store, "y", 0);
  const Holder holder = {owner(*store), other.epoch, other.before.begun, other.before.seed};
  EXPECT_TRUE(*store->end(kKey, holder, nullptr));
  EXPECT_EQ(begin(*store, "y").outcome, FenceOutcome::kCutOff);
  const auto knows =
      store->begin(kKey, {.owner = owner(*store), .request = "y", .after_cut_off = true});
  EXPECT_EQ(knows->outcome, FenceOutcome::kOk);
  EXPECT_TRUE(*store->end(kKey, {owner(*store), knows->epoch, "x", cut_off.seed}, nullptr));
  const auto again = store->begin(kKey, {.owner = owner(*store), .request = "x", .seed = 9});
  EXPECT_EQ(again->outcome, FenceOutcome::kOk);
  EXPECT_EQ(again->seed, cut_off.seed);
}

TEST_P(StoreContract, AServersOwnLeaseDoesNotExcludeIt) {
  const auto store = open();
  create(*store);
  const Begun lost = begin(*store, "x");
  const Begun again = begin(*store, "x");
  EXPECT_EQ(again.outcome, FenceOutcome::kOk);
  EXPECT_FALSE(end(*store, lost.epoch, 3));
  EXPECT_TRUE(end(*store, again.epoch, 3));
}

TEST_P(StoreContract, ADeletedSessionRefusesWrites) {
  const auto one = open();
  const auto two = open();
  create(*one);
  const Begun begun = begin(*one, "x");
  EXPECT_TRUE(*two->remove(kKey));
  EXPECT_FALSE(*one->renew(kKey, {owner(*one), begun.epoch}));
  EXPECT_FALSE(end(*one, begun.epoch, 3));
  advance(1);
  create(*two, 8);
  EXPECT_FALSE(end(*one, begun.epoch, 3)) << "made again";
  EXPECT_EQ(load(*one), state_at(8));
}

TEST_P(StoreContract, AListHasTheSessionsOfOneOwnerInTheirOrder) {
  const auto one = open();
  const auto two = open();
  EXPECT_THAT(list(*one, "", 10), IsEmpty());
  for (const char* const id : {"c", "a", "a-b", "B"}) create_listed(*one, "", id);
  create_listed(*one, "ada", "d");
  EXPECT_THAT(list(*two, "", 10), ElementsAre("B", "a", "a-b", "c"));
  EXPECT_THAT(list(*two, "", 2), ElementsAre("B", "a"));
  EXPECT_THAT(list(*two, "a", 1), ElementsAre("a-b"));
  EXPECT_THAT(list(*two, "a-", 10), ElementsAre("a-b", "c")) << "after an id that is not there";
  EXPECT_THAT(list(*two, "c", 10), IsEmpty());
  EXPECT_TRUE(end(*two, begin(*two, "x").epoch, 3));
  EXPECT_THAT(list(*two, "", 10), ElementsAre("B", "a", "a-b", "c")) << "after a call";
  EXPECT_TRUE(*two->remove(kKey));
  EXPECT_TRUE(one->sweep().ok());
  EXPECT_THAT(list(*one, "", 10), ElementsAre("B", "a-b", "c"));
  create(*one);
  EXPECT_THAT(list(*one, "", 10), ElementsAre("B", "a-b", "c")) << "made again, in no list";
}

TEST_P(StoreContract, ALongListIsGivenInParts) {
  const auto store = open();
  std::vector<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.push_back("s" + std::to_string(100 + i * 37 % 100));
  for (const std::string& id : ids) create_listed(*store, "", id);
  std::ranges::sort(ids);
  std::vector<std::string> found;
  for (std::string after;; after = found.back()) {
    const auto part = list(*store, after, 7);
    EXPECT_LE(part.size(), 7U);
    if (part.empty()) break;
    found.insert(found.end(), part.begin(), part.end());
  }
  EXPECT_EQ(found, ids);
}

TEST_P(StoreContract, ASessionThatNobodyUsesExpires) {
  const auto store = open();
  create(*store);
  advance(kTimes.ttl_ms);
  EXPECT_TRUE(store->look(kKey)->has_value());
  advance(1);
  EXPECT_FALSE(store->look(kKey)->has_value());
  EXPECT_EQ(begin(*store, "x").outcome, FenceOutcome::kNone);
  create(*store, 3);
  EXPECT_EQ(load(*store), state_at(3));
}

TEST_P(StoreContract, ASessionWhoseLongCallIsCutOffDoesNotExpire) {
  const auto one = open();
  const auto two = open();
  create(*one, 4);
  const int64_t epoch = begin(*one, "x").epoch;
  for (int64_t passed = 0; passed <= kTimes.ttl_ms; passed += kTimes.lease_ms / 2) {
    advance(kTimes.lease_ms / 2);
    ASSERT_TRUE(*one->renew(kKey, {owner(*one), epoch}));
  }
  advance(kTimes.lease_ms);
  EXPECT_EQ(begin(*two, "y", 4).outcome, FenceOutcome::kOk);
  EXPECT_EQ(load(*two), state_at(4));
}

TEST_P(StoreContract, AStateThatWasReplacedIsNotFound) {
  const auto store = open();
  create(*store, 1);
  const Record old = **store->look(kKey);
  ASSERT_TRUE(end(*store, begin(*store, "x").epoch, 2));
  const Status status = store->load(kKey, old, [](auto) { return Status(); });
  EXPECT_EQ(status.code(), Code::kNotFound);
}

TEST_P(StoreContract, ErrorsOfTheReaderOfAStateAreReturned) {
  const auto store = open();
  create(*store, 1);
  const Status status =
      store->load(kKey, **store->look(kKey), [](auto) { return Status(Code::kAborted, "enough"); });
  EXPECT_EQ(status.message(), "enough");
}

// A server whose clock is ahead by more than a lease takes the session from a running call. That
// call is not saved, so no position is given twice.
TEST_P(StoreContract, AClockThatIsAheadOnlyCutsOffACall) {
  const Clock ahead(clock_.now() + std::chrono::milliseconds(2 * kTimes.lease_ms));
  const auto one = open();
  const auto two = open(ahead);
  create(*one, 4);
  const Begun first = begin(*one, "x");
  EXPECT_EQ(begin(*two, "y").outcome, FenceOutcome::kCutOff);
  const Begun second = begin(*two, "y", 4);
  ASSERT_EQ(second.outcome, FenceOutcome::kOk);
  EXPECT_GT(second.epoch, first.epoch);
  EXPECT_EQ(begin(*one, "x", 4).outcome, FenceOutcome::kBusy) << "this clock is late";
  EXPECT_FALSE(*one->renew(kKey, {owner(*one), first.epoch}));
  EXPECT_FALSE(end(*one, first.epoch, 9)) << "a late writer";
  EXPECT_TRUE(end(*two, second.epoch, 6));
  const Begun third = begin(*one, "z");
  ASSERT_EQ(third.outcome, FenceOutcome::kOk);
  EXPECT_GT(third.epoch, second.epoch) << "although this clock is late";
  EXPECT_TRUE(end(*one, third.epoch, 8));
  EXPECT_EQ(load(*two), state_at(8));
}

// Servers race for one session. Some die in a call, some stall for longer than their lease. Every
// acknowledged position must exist exactly once. The clock of each server is ahead of the previous
// one's by `skew`.
void StoreContract::check_race(Duration skew) {
  create(*open());
  std::vector<std::unique_ptr<Clock>> clocks;
  for (int i = 0; i < 6; ++i) clocks.push_back(std::make_unique<Clock>(clock_.now() + i * skew));
  const auto pass = [&](int64_t ms) {
    for (const auto& clock : clocks) clock->advance(std::chrono::milliseconds(ms));
  };
  std::mutex mutex;
  std::vector<int64_t> acknowledged;
  int64_t fenced = 0;
  const auto serve = [&](int number) {
    const auto store = open(*clocks[static_cast<size_t>(number)]);
    std::mt19937 random(static_cast<uint32_t>(number));
    for (int call = 0; call < 100; ++call) {
      const std::string request = std::to_string(number) + "-" + std::to_string(call);
      Begun begun = begin(*store, request);
      if (begun.outcome == FenceOutcome::kCutOff) {
        begun = begin(*store, request, begun.before.position);
      }
      if (begun.outcome != FenceOutcome::kOk) {
        pass(20);
        std::this_thread::yield();
        continue;
      }
      const int64_t position = begun.before.position + 1;
      const auto chance = random() % 20;
      if (chance == 0) continue;                   // the server dies
      if (chance == 1) pass(2 * kTimes.lease_ms);  // the server stalls
      if (chance < 8) std::this_thread::yield();
      const bool ended = end(*store, begun.epoch, position);
      std::lock_guard lock(mutex);
      ended ? acknowledged.push_back(position) : static_cast<void>(++fenced);
    }
  };
  std::vector<std::thread> servers;
  for (int i = 0; i < std::ssize(clocks); ++i) servers.emplace_back(serve, i);
  for (std::thread& server : servers) server.join();
  std::ranges::sort(acknowledged);
  ASSERT_FALSE(acknowledged.empty());
  for (size_t i = 0; i < acknowledged.size(); ++i) {
    ASSERT_EQ(acknowledged[i], static_cast<int64_t>(i) + 1) << fenced << " late writers";
  }
  EXPECT_EQ(load(*open()), state_at(std::ssize(acknowledged)));
}

TEST_P(StoreContract, RacingServersNeitherLoseNorRepeatACall) { check_race(Duration(0)); }

TEST_P(StoreContract, RacingServersWhoseClocksDifferNeitherLoseNorRepeatACall) {
  check_race(std::chrono::milliseconds(2 * kTimes.lease_ms));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract,
                         ::testing::Values(Kind::kMemory, Kind::kDirectory, Kind::kRedis),
                         [](const auto& kind) {
                           return kind.param == Kind::kMemory      ? "Memory"
                                  : kind.param == Kind::kDirectory ? "Directory"
                                                                   : "Redis";
                         });

}  // namespace
}  // namespace runnel
