// A store in a real Redis: pieces, expiry, full memory, damage, and restarts of Redis.
#include "storage/redis_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "storage/open_store.h"
#include "storage/record_key.h"
#include "tests/base/certificates.h"
#include "tests/base/eventually.h"
#include "tests/storage/open_redis.h"
#include "tests/storage/record_keys.h"
#include "tests/storage/redis_server.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr StoreTimes kRedisTimes = {.ttl_ms = 3600000, .lease_ms = 300, .timeout_ms = 60000};

std::string state_of(size_t bytes, char first) {
  std::string state(bytes, '.');
  for (size_t i = 0; i < bytes; ++i) state[i] = static_cast<char>(first + i / 1000 % 64);
  return state;
}

class RedisStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::is_installed()) GTEST_SKIP() << RedisServer::kMissing;
    start({});
  }

  void start(const std::vector<std::string>& flags) {
    redis_.reset();
    redis_ = std::make_unique<RedisServer>(flags);
    ASSERT_TRUE(redis_->is_up());
  }

  std::unique_ptr<RedisStore> open() {
    auto store = RedisStore::open({.url = redis_->url()}, times_, real_clock());
    EXPECT_TRUE(store.ok()) << store.status().message();
    return store.ok() ? std::move(*store) : nullptr;
  }

  static Snapshot snapshot(int64_t position, std::string state) {
    return {position, [text = std::move(state)]() mutable {
              std::string piece = text.substr(0, 64 << 10);
              text.erase(0, piece.size());
              return piece;
            }};
  }

  static Result<int64_t> create(RedisStore& store, const std::string& key,
                                const std::string& state) {
    const Snapshot given = snapshot(1, state);
    return store.create(key, {store.replica() + "/m"}, &given);
  }

  static Result<int64_t> begin(RedisStore& store, const std::string& key = kKey) {
    const auto begun = store.begin(key, {.owner = store.replica() + "/m", .request = "x"});
    if (!begun.ok()) return begun.status();
    return begun->outcome == FenceOutcome::kOk ? begun->epoch : 0;
  }

  static Result<bool> end(RedisStore& store, int64_t epoch, const std::string& state) {
    const Snapshot given = snapshot(2, state);
    return store.end(kKey, {store.replica() + "/m", epoch}, &given);
  }

  static Result<std::string> load(RedisStore& store, const std::string& key = kKey) {
    const auto record = store.look(key);
    if (!record.ok()) return record.status();
    if (!*record) return not_found("no record");
    std::string state;
    const Status loaded = store.load(key, **record, [&](std::span<const std::byte> bytes) {
      state.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return Status();
    });
    return loaded.ok() ? Result<std::string>(state) : Result<std::string>(loaded);
  }

  int64_t number(const std::vector<std::string_view>& words) const {
    const auto reply = redis_->ask(words, RespKind::kNumber);
    EXPECT_TRUE(reply.ok()) << reply.status().message();
    return reply.ok() ? reply->number : -1;
  }
  int64_t keys() const { return number({"DBSIZE"}); }
  std::string name(const Record& record, int piece) const {
    return "runnel:" + kKey + ":" + std::to_string(record.state) + ":" + std::to_string(piece);
  }

  StoreTimes times_ = kRedisTimes;
  std::unique_ptr<RedisServer> redis_;
};

TEST_F(RedisStoreTest, StatesOfEverySizeComeBackInTheirPieces) {
  const auto store = open();
  ASSERT_TRUE(create(*store, kKey, "").ok());
  for (const size_t bytes : {size_t{0}, size_t{1}, kRedisPieceBytes - 1, kRedisPieceBytes,
                             kRedisPieceBytes + 1, 3 * kRedisPieceBytes, size_t{5000000}}) {
    const std::string state = state_of(bytes, '0');
    ASSERT_TRUE(*end(*store, *begin(*store), state));
    const auto loaded = load(*store);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_TRUE(*loaded == state) << bytes;
    EXPECT_EQ(keys(), static_cast<int64_t>(2 + bytes / kRedisPieceBytes)) << "old pieces are gone";
  }
  EXPECT_TRUE(*store->remove(kKey));
  EXPECT_EQ(keys(), 0);
}

TEST_F(RedisStoreTest, EveryKeyExpiresAndUseExtendsAllKeysOfASession) {
  const auto store = open();
  ASSERT_TRUE(create(*store, kKey, state_of(kRedisPieceBytes + 5, 'a')).ok());
  const Record record = **store->look(kKey);
  const std::vector<std::string> names = {"runnel:" + kKey, name(record, 0), name(record, 1)};
  for (const std::string& key : names) {
    EXPECT_GT(number({"PTTL", key}), kRedisTimes.ttl_ms) << key;
    EXPECT_LE(number({"PTTL", key}), kRedisTimes.ttl_ms + kRedisTimes.lease_ms) << key;
    EXPECT_EQ(number({"PEXPIRE", key, "60000"}), 1);
  }
  ASSERT_TRUE(begin(*store).ok());
  for (const std::string& key : names) EXPECT_GT(number({"PTTL", key}), kRedisTimes.ttl_ms) << key;
  times_ = {.ttl_ms = 30, .lease_ms = 10, .timeout_ms = 60000};
  const auto brief = open();
  ASSERT_TRUE(create(*brief, kOther, "short").ok());
  EXPECT_TRUE(eventually([&] { return keys() == 3; })) << "with nobody to remove it";
}

TEST_F(RedisStoreTest, TimesComeFromRedis) {
  const auto store = open();
  ASSERT_TRUE(create(*store, kKey, "state").ok());
  ASSERT_NE(*begin(*store), 0);
  const auto now = redis_->ask({"TIME"}, RespKind::kArray);
  ASSERT_TRUE(now.ok());
  const int64_t used = (*store->look(kKey))->used;
  EXPECT_NEAR(static_cast<double>(used), std::stod(now->items[0].text) * 1000, 60000);
  const auto other = open();
  EXPECT_TRUE(eventually([&] { return *begin(*other) != 0; })) << "the lease ends with time alone";
}

// After a pause of this machine, or if the clock of Redis was set.
TEST_F(RedisStoreTest, ARecordIsReadAgainIfTheEstimateOfItsTimeIsWrong) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  times_.lease_ms = 600000;  // the test does not take a quarter of this, which is still no error
  auto opened = RedisStore::open({.url = redis_->url()}, times_, clock);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  RedisStore& store = **opened;
  ASSERT_TRUE(create(store, kKey, "state").ok());
  const int64_t epoch = *begin(store);
  ASSERT_NE(epoch, 0);
  const auto scripts = [&] {
    const auto info = redis_->ask({"INFO", "commandstats"}, RespKind::kBulk);
    EXPECT_TRUE(info.ok());
    const std::string words = "cmdstat_eval:calls=";
    return std::stoll(info->text.substr(info->text.find(words) + words.size()));
  };
  const auto scripts_of_renew = [&] {
    const int64_t before = scripts();
    EXPECT_TRUE(*store.renew(kKey, {store.replica() + "/m", epoch}));
    return scripts() - before;
  };
  EXPECT_EQ(scripts_of_renew(), 1);
  clock.advance(std::chrono::minutes(-10));
  EXPECT_EQ(scripts_of_renew(), 3) << "it tried to change the record, read it, and changed it";
  EXPECT_EQ(scripts_of_renew(), 1);
}

TEST_F(RedisStoreTest, AFencedOffCallLeavesNoKeys) {
  const auto store = open();
  const auto other = open();
  ASSERT_TRUE(create(*store, kKey, state_of(100, 'a')).ok());
  const int64_t epoch = *begin(*store);
  std::string state = state_of(3 * kRedisPieceBytes, 'b');
  const Snapshot late = {2, [&] {
                           if (!state.empty()) {
                             EXPECT_TRUE(*other->remove(kKey));
                           }
                           return std::exchange(state, "");
                         }};
  EXPECT_FALSE(*store->end(kKey, {store->replica() + "/m", epoch}, &late));
  EXPECT_EQ(keys(), 0);
}

TEST_F(RedisStoreTest, OfTwoNewSessionsWithTheSameKeyTheFirstStays) {
  const auto store = open();
  const auto other = open();
  std::string state = "late";
  const Snapshot given = {7, [&] {
                            if (!state.empty()) {
                              EXPECT_NE(*create(*other, kKey, "first"), 0);
                            }
                            return std::exchange(state, "");
                          }};
  EXPECT_EQ(*store->create(kKey, {store->replica() + "/m"}, &given), 0);
  EXPECT_EQ(*load(*store), "first");
  EXPECT_EQ(keys(), 2);
}

TEST_F(RedisStoreTest, DamagedSessionsAreRefusedAndCanBeDeleted) {
  const auto store = open();
  const std::string state = state_of(kRedisPieceBytes + 5, 'a');
  ASSERT_TRUE(create(*store, kKey, state).ok());
  const Record record = **store->look(kKey);
  const std::string last = name(record, 1);
  ASSERT_TRUE(redis_->ask({"SET", last, "other"}, RespKind::kText).ok());
  EXPECT_EQ(load(*store).status().code(), Code::kDataLoss) << "another end";
  const std::string large(kRedisPieceBytes + 1, 'x');
  ASSERT_TRUE(redis_->ask({"SET", last, large}, RespKind::kText).ok());
  EXPECT_EQ(load(*store).status().code(), Code::kDataLoss) << "no piece is larger";
  number({"UNLINK", last});
  EXPECT_EQ(load(*store).status().code(), Code::kNotFound);
  number({"LPUSH", last, "list"});
  EXPECT_EQ(load(*store).status().code(), Code::kDataLoss) << "of another type";
  const std::string key = "runnel:" + kKey;
  ASSERT_TRUE(redis_->ask({"SET", key, "{\"version\":1"}, RespKind::kText).ok());
  const Status damaged = load(*store).status();
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_THAT(damaged.message(), StartsWith(key + " in Redis: the record"));
  EXPECT_EQ(begin(*store).status().code(), Code::kDataLoss);
  EXPECT_TRUE(*store->remove(kKey));
  EXPECT_FALSE(store->look(kKey)->has_value());
}

TEST_F(RedisStoreTest, CallsEndAndSessionsAreDeletedWhileTheMemoryIsFull) {
  const auto store = open();
  ASSERT_TRUE(create(*store, kKey, state_of(100, 'a')).ok());
  const int64_t epoch = *begin(*store);
  const auto allow = [&](std::string_view bytes) {
    ASSERT_TRUE(redis_->ask({"CONFIG", "SET", "maxmemory", bytes}, RespKind::kText).ok());
  };
  allow("1");
  const Status full = end(*store, epoch, state_of(3 * kRedisPieceBytes, 'b')).status();
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("refuses a command: OOM"));
  EXPECT_EQ(create(*store, kOther, "new").status().code(), Code::kResourceExhausted);
  EXPECT_EQ(store->create(kOther, {"m"}, nullptr).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(*load(*store), state_of(100, 'a'));
  EXPECT_TRUE(*store->renew(kKey, {store->replica() + "/m", epoch}));
  EXPECT_TRUE(*store->log(kKey, {store->replica() + "/m", epoch}, {2, "entry"}));
  const int64_t second = *begin(*store);
  EXPECT_TRUE(*store->end(kKey, {store->replica() + "/m", second}, nullptr));
  EXPECT_EQ(keys(), 2) << "no piece is left";
  EXPECT_TRUE(*store->remove(kKey));
  allow("0");
  EXPECT_NE(*create(*store, kOther, "new"), 0);
}

TEST_F(RedisStoreTest, NothingIsLostWhenRedisIsKilledAndStartsAgain) {
  start({"--appendfsync", "always"});
  const auto store = open();
  ASSERT_TRUE(create(*store, kKey, state_of(2 * kRedisPieceBytes, 'a')).ok());
  for (int i = 0; i < 3; ++i) {
    const int64_t epoch = *begin(*store);
    redis_->stop(SIGKILL);
    const Status status = store->renew(kKey, {store->replica() + "/m", epoch}).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("cannot be reached"));
    redis_->start();
    ASSERT_TRUE(redis_->is_up());
    const std::string state = state_of(100000 + static_cast<size_t>(i), 'b');
    Result<bool> ended = false;
    EXPECT_TRUE(eventually([&] {  // the store pauses after a failure
      ended = end(*store, epoch, state);
      return ended.ok();
    }));
    EXPECT_TRUE(ended.ok() && *ended);
    EXPECT_EQ(*load(*store), state);
  }
}

TEST_F(RedisStoreTest, AHangingRedisTimesOut) {
  ASSERT_TRUE(create(*open(), kKey, "state").ok());
  times_.timeout_ms = 100;
  const auto store = open_when_in_time(redis_->url(), times_);
  ASSERT_NE(store, nullptr);
  redis_->send_signal(SIGSTOP);
  const auto before = std::chrono::steady_clock::now();
  const Status status = begin(*store).status();
  EXPECT_LT(std::chrono::steady_clock::now() - before, kPatience);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("has not answered within 100 ms (storage.timeout_ms)"));
  redis_->send_signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return begin(*store).ok(); }));
}

TEST_F(RedisStoreTest, AUserWithAPasswordNeedsOnlyTheCommandsOfTheDocs) {
  std::vector<std::string> flags = {"--user", "default", "off", "--user", "runnel", "on"};
  for (const char* const rule :
       {">secret", "~runnel:*", "resetchannels", "-@all", "+auth", "+select", "+time", "+get",
        "+set", "+rename", "+pexpire", "+unlink", "+eval", "+exists", "+zadd", "+zrem",
        "+zrangebylex", "+zrandmember", "+info"}) {
    flags.emplace_back(rule);
  }
  start(flags);
  const TestFolder folder;
  const std::string file = folder.write("password", std::string("secret\n"));
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  StoreUrl url = redis_->url();
  url.user = "runnel";
  url.database = 3;
  auto store = RedisStore::open({.url = url, .password = "secret"}, kRedisTimes, real_clock());
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_TRUE(create(**store, kKey, state_of(3000000, 'a')).ok());
  EXPECT_TRUE(*end(**store, *begin(**store), "state"));
  EXPECT_EQ(*load(**store), "state");
  const std::string list = record_list("model", "");
  ASSERT_NE(*(*store)->create(kOther, {.owner = "m", .list = list, .id = "b"}, nullptr), 0);
  EXPECT_THAT(*(*store)->list(list, "", 10), ElementsAre("b"));
  EXPECT_TRUE(*(*store)->remove(kOther));
  EXPECT_THAT(*(*store)->list(list, "", 10), IsEmpty());
  EXPECT_TRUE(*(*store)->remove(kKey));
  const auto wrong = RedisStore::open({.url = url, .password = "other"}, kRedisTimes, real_clock());
  EXPECT_EQ(wrong.status().code(), Code::kUnavailable);
  EXPECT_THAT(wrong.status().message(),
              EndsWith("refuses a login with the password of storage.password_file"));
  const auto none =
      open_store({.url = "unix:" + redis_->url().path, .password_file = file, .times = kRedisTimes},
                 real_clock());
  EXPECT_THAT(none.status().message(),
              EndsWith("refuses a login with the password of storage.password_file"))
      << "the default user is off";
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(
      open_store({.url = "unix:" + url.path, .password_file = file}, real_clock()).status().code(),
      Code::kInvalidArgument);
}

class RedisTlsTest : public RedisStoreTest {
 protected:
  // Starts a Redis at localhost that only uses TLS. `asks`: "yes" if it requires certificates.
  void start_with_tls(const std::string& asks) {
    std::signal(SIGPIPE, SIG_IGN);  // as the program does
    const PemPair own = authority_.issue("redis", "DNS:localhost");
    const std::string certificate = folder_.write("redis.pem", own.certificate);
    const std::string key = folder_.write("redis.key", own.key);
    std::vector<std::string> words = {"--bind",          "127.0.0.1", "--tls-auth-clients", asks,
                                      "--tls-cert-file", certificate, "--tls-key-file",     key};
    // Given these authorities, Redis would also send them in its own chain.
    if (asks == "yes") words.insert(words.end(), {"--tls-ca-cert-file", ca_});
    ASSERT_TRUE(eventually([&] {  // if another program takes the port first, Redis exits
      port_ = std::to_string(free_port());
      std::vector<std::string> all = words;
      all.insert(all.end(), {"--tls-port", port_});
      redis_ = std::make_unique<RedisServer>(all);
      return redis_->is_up();
    }));
  }

  Result<std::shared_ptr<Store>> opened(const RedisTlsFiles& files,
                                        const std::string& host = "localhost") const {
    return open_store({.url = "rediss://" + host + ":" + port_, .tls = files, .times = kRedisTimes},
                      real_clock());
  }

  // Saves a state of several pieces in a new session, and loads it.
  void expect_works(const Result<std::shared_ptr<Store>>& store) {
    ASSERT_TRUE(store.ok()) << store.status().message();
    auto& redis = dynamic_cast<RedisStore&>(**store);
    const std::string state = state_of(5 * kRedisPieceBytes / 2, 'a');
    ASSERT_TRUE(create(redis, kKey, state).ok());
    EXPECT_TRUE(*load(redis) == state);
  }

  const TestFolder folder_;
  const TestAuthority authority_{"ours"};
  const std::string ca_ = folder_.write("ca.pem", authority_.pem());
  const std::string other_ = folder_.write("other.pem", TestAuthority("theirs").pem());
  std::string port_;
};

TEST_F(RedisTlsTest, RedisNeedsACertificateOfItsHostByTheAuthority) {
  start_with_tls("no");
  const auto store = opened({.ca = ca_});
  expect_works(store);
  for (const auto& [host, authorities, reason] :
       {std::tuple("127.0.0.1", ca_, "IP address mismatch"),
        std::tuple("localhost", other_, "unable to get local issuer certificate"),
        std::tuple("localhost", std::string(), "unable to get local issuer certificate")}) {
    const Status status = opened({.ca = authorities}, host).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr(reason));
  }
  EXPECT_EQ(opened({.ca = folder_.path("none")}).status().code(), Code::kInvalidArgument);
  const Status plain =
      open_store({.url = "redis://localhost:" + port_, .times = kRedisTimes}, real_clock())
          .status();
  EXPECT_EQ(plain.code(), Code::kUnavailable);
  redis_->stop(SIGKILL);
  EXPECT_EQ((*store)->look(kKey).status().code(), Code::kUnavailable);
}

TEST_F(RedisTlsTest, ARedisThatAsksForACertificateGetsTheServersOwn) {
  start_with_tls("yes");
  const PemPair ours = authority_.issue("runnel");
  const std::string cert = folder_.write("runnel.pem", ours.certificate);
  const std::string key = folder_.write("runnel.key", ours.key);
  expect_works(opened({.ca = ca_, .cert = cert, .key = key}));
  const Status none = opened({.ca = ca_}).status();
  EXPECT_EQ(none.code(), Code::kUnavailable);
  EXPECT_THAT(none.message(), HasSubstr("certificate required"));
  const PemPair theirs = TestAuthority("theirs").issue("runnel");
  const std::string foreign_cert = folder_.write("theirs.pem", theirs.certificate);
  const std::string foreign_key = folder_.write("theirs.key", theirs.key);
  const Status foreign = opened({.ca = ca_, .cert = foreign_cert, .key = foreign_key}).status();
  EXPECT_EQ(foreign.code(), Code::kUnavailable);
  EXPECT_THAT(foreign.message(), HasSubstr("unknown ca"));
  const Status mixed = opened({.ca = ca_, .cert = cert, .key = foreign_key}).status();
  EXPECT_EQ(mixed.code(), Code::kInvalidArgument);
  EXPECT_THAT(mixed.message(), HasSubstr("is not the key of"));
}

TEST_F(RedisStoreTest, AListLosesSessionsThatHaveExpired) {
  const std::string list = record_list("model", "");
  const auto store = open();
  ASSERT_NE(*store->create(kKey, {.owner = "m", .list = list, .id = "a"}, nullptr), 0);
  times_ = {.ttl_ms = 30, .lease_ms = 10, .timeout_ms = 60000};
  ASSERT_NE(*open()->create(kOther, {.owner = "m", .list = list, .id = "b"}, nullptr), 0);
  EXPECT_TRUE(eventually([&] { return store->list(list, "", 10)->size() == 1; }));
  EXPECT_EQ(number({"ZCARD", "runnel:list:" + list}), 1);
  EXPECT_GT(number({"PTTL", "runnel:list:" + list}), kRedisTimes.ttl_ms - 60000)
      << "the list lives as long as its longest session";
}

TEST_F(RedisStoreTest, AListOfManySessionsThatHaveExpiredIsListedInParts) {
  const std::string list = record_list("model", "");
  const std::string name = "runnel:list:" + list;
  const auto store = open();
  const auto add_gone = [&](int first, int count) {  // adds sessions without records
    std::vector<std::string> members;
    for (int i = first; i < first + count; ++i) {
      members.push_back("m" + std::to_string(i) + "\n" + record_key("gone", "", std::to_string(i)));
    }
    std::vector<std::string_view> words = {"ZADD", name};
    for (const std::string& member : members) words.insert(words.end(), {"0", member});
    EXPECT_EQ(number(words), count);
  };
  add_gone(10000, 2500);
  ASSERT_NE(*store->create(kOther, {.owner = "m", .list = list, .id = "z"}, nullptr), 0);
  ASSERT_NE(*store->create(kKey, {.owner = "m", .list = list, .id = "a"}, nullptr), 0);
  EXPECT_THAT(*store->list(list, "", 2), ElementsAre("a", "z"));
  EXPECT_EQ(number({"ZCARD", name}), 2);
  add_gone(10000, 999);
  EXPECT_THAT(*store->list(list, "", 10), ElementsAre("a", "z"));
  EXPECT_THAT(*store->list(list, "", 1), ElementsAre("a"));
  EXPECT_THAT(*store->list(list, "a", 1), ElementsAre("z"));
  EXPECT_THAT(*store->list(list, "z", 1), IsEmpty());
}

TEST_F(RedisStoreTest, CreatingASessionRemovesExpiredOnesFromItsList) {
  const std::string list = record_list("model", "");
  const std::string name = "runnel:list:" + list;
  const auto store = open();
  for (const std::string_view gone : {"b\n", "c\nkey", "no line"}) {
    EXPECT_EQ(number({"ZADD", name, "0", gone}), 1);
  }
  int count = 0;
  do {
    ASSERT_LT(count, 1000);
    const std::string id = "s" + std::to_string(count++);
    const std::string key = record_key("model", "", id);
    ASSERT_NE(*store->create(key, {.owner = "m", .list = list, .id = id}, nullptr), 0);
  } while (number({"ZCARD", name}) > count);
  EXPECT_EQ(std::ssize(*store->list(list, "", 2000)), count) << "nobody listed them before";
}

TEST_F(RedisStoreTest, ARedisThatDeletesSessionsToMakeRoomIsRefused) {
  start({"--maxmemory-policy", "allkeys-lru"});
  const Status status = RedisStore::open({.url = redis_->url()}, times_, real_clock()).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("'allkeys-lru'"));
  EXPECT_THAT(status.message(), HasSubstr("noeviction"));
}

// A failover may lose the last writes. Then two servers may each have saved a call from the same
// position, and a copy of one must not be used as the session of the other.
TEST_F(RedisStoreTest, ACallThatReplacesALostOneHasAnotherEpoch) {
  const auto store = open();
  const auto other = open();
  ASSERT_TRUE(create(*store, kKey, "state").ok());
  const std::string name = "runnel:" + kKey;
  const std::string before = redis_->ask({"GET", name}, RespKind::kBulk)->text;
  const int64_t lost = *begin(*store);
  EXPECT_TRUE(*store->log(kKey, {store->replica() + "/m", lost}, {5, "heard"}));
  ASSERT_TRUE(redis_->ask({"SET", name, before}, RespKind::kText).ok());
  const int64_t then = real_clock().unix_ms();
  EXPECT_TRUE(eventually([&] { return real_clock().unix_ms() > then; })) << "a failover takes time";
  const int64_t again = *begin(*other);
  EXPECT_GT(again, lost);
  EXPECT_TRUE(*other->log(kKey, {other->replica() + "/m", again}, {5, "in its place"}));
  EXPECT_FALSE(*store->settle(kKey, lost, snapshot(5, "state of the lost call")));
}

}  // namespace
}  // namespace runnel
