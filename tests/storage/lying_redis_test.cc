// A Redis that sends wrong replies or hangs, or another kind of server: each call ends in time,
// with an error that shows the reply.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "storage/record_key.h"
#include "storage/redis_store.h"
#include "tests/base/eventually.h"
#include "tests/base/test_files.h"
#include "tests/storage/open_redis.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kLyingKey = record_key("model", "", "a");
const std::string kTime = "*1\r\n:1000\r\n";
const std::string kSwapped = "*2\r\n:1\r\n:1000\r\n";
const std::string kOvertaken = "*1\r\n:0\r\n";
constexpr int64_t kPatienceMs = std::chrono::milliseconds(kPatience).count();

std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

// A server that answers commands as a test decides.
class LyingRedis {
 public:
  // Returns the reply to a command, and may pause. Without a reply the connection is closed.
  using Answer = std::function<std::optional<std::string>(const std::vector<std::string>&)>;

  explicit LyingRedis(Answer answer) : answer_(std::move(answer)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    url().path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    listening_ = socket(AF_UNIX, SOCK_STREAM, 0);
    is_up_ = bind(listening_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
             listen(listening_, 100) == 0;
    thread_ = std::thread([this] { serve(); });
  }
  ~LyingRedis() {
    shutdown(listening_, SHUT_RDWR);
    thread_.join();
    close(listening_);
  }

  StoreUrl url() const { return {.kind = StoreKind::kRedis, .path = folder_.path("socket")}; }
  bool is_up() const { return is_up_; }
  // If it is not 0, replies are sent byte by byte with this pause before each byte.
  std::atomic<int> pause_ms{0};

 private:
  // Accepts connections until the socket is shut down, then closes them.
  void serve() {
    std::vector<int> peers;
    std::vector<std::thread> threads;
    for (int peer = accept(listening_, nullptr, nullptr); peer >= 0;
         peer = accept(listening_, nullptr, nullptr)) {
      peers.push_back(peer);
      threads.emplace_back([this, peer] {
        talk(peer);
        shutdown(peer, SHUT_RDWR);
      });
    }
    for (const int peer : peers) shutdown(peer, SHUT_RDWR);
    for (std::thread& thread : threads) thread.join();
    for (const int peer : peers) close(peer);
  }

  void talk(int peer) {
    RespReader commands([peer](std::span<char> to) -> Result<size_t> {
      const ssize_t count = recv(peer, to.data(), to.size(), 0);
      if (count > 0) return static_cast<size_t>(count);
      return Status(Code::kUnavailable, "the connection has ended");
    });
    for (auto command = commands.next(); command.ok(); command = commands.next()) {
      std::vector<std::string> words;
      for (const RespValue& word : command->items) words.push_back(word.text);
      const auto bytes = answer_(words);
      if (!bytes || !give(peer, *bytes)) return;
    }
  }

  bool give(int peer, const std::string& bytes) const {
    if (pause_ms == 0) {
      return send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
    }
    for (const char byte : bytes) {
      pollfd end = {.fd = peer, .events = POLLRDHUP, .revents = 0};
      if (poll(&end, 1, pause_ms) != 0) return false;  // the connection was closed
      if (send(peer, &byte, 1, MSG_NOSIGNAL) != 1) return false;
    }
    return true;
  }

  const TestFolder folder_;
  const Answer answer_;
  int listening_ = -1;
  bool is_up_ = false;
  std::thread thread_;
};

// A store on this Redis, whose replies are correct during login and until the store is open.
class LyingRedisTest : public ::testing::Test {
 protected:
  LyingRedisTest() : redis_([this](const auto& words) { return answer(words); }) {
    open(kPatienceMs);
  }

  void open(int64_t timeout_ms) {
    store_ = open_when_in_time(redis_.url(),
                               {.ttl_ms = 3600000, .lease_ms = 300, .timeout_ms = timeout_ms});
    ASSERT_NE(store_, nullptr);
  }

  void tell(const LyingRedis::Answer& lie) {
    std::lock_guard lock(mutex_);
    lie_ = lie;
  }

  std::optional<std::string> answer(const std::vector<std::string>& words) {
    if (words[0] == "SELECT") return "+OK\r\n";
    std::lock_guard lock(mutex_);
    if (lie_) return lie_(words);
    if (words[0] == "INFO") return policy_;
    // The scripts that read and write a record, and the one that asks for a permission.
    return words.size() == 4 ? kTime : words.size() == 15 ? kOvertaken : ":0\r\n";
  }

  // The status of a call that gets this answer.
  Status look(const LyingRedis::Answer& lie) {
    tell(lie);
    return in_time([this] { return store_->look(kLyingKey).status(); });
  }

  static Status in_time(const std::function<Status()>& call) {
    const auto before = std::chrono::steady_clock::now();
    const Status status = call();
    EXPECT_LT(std::chrono::steady_clock::now() - before, kPatience);
    return status;
  }

  std::mutex mutex_;
  LyingRedis::Answer lie_;  // if it is not set, replies are correct
  std::string policy_ = bulk("# Memory\r\nmaxmemory_policy:noeviction\r\n");
  LyingRedis redis_;
  std::unique_ptr<RedisStore> store_;
};

TEST_F(LyingRedisTest, RepliesOfEveryWrongFormAreRefused) {
  const std::string wrong = "has sent a reply of another kind";
  const std::string record = bulk("{}");
  for (const auto& [bytes, reason] :
       {std::pair<std::string, std::string>("+OK\r\n", wrong),
        {":1\r\n", wrong},
        {"$-1\r\n", wrong},
        {"*0\r\n", wrong},
        {"*1\r\n+1000\r\n", wrong},
        {"*1\r\n:-1\r\n", wrong},
        {"*1\r\n:9223372036854775807\r\n", wrong},
        {"*2\r\n:1000\r\n$0\r\n\r\n", wrong},
        {"*2\r\n:1000\r\n:1\r\n", wrong},
        {"*3\r\n:1000\r\n$1\r\nx\r\n$1\r\nx\r\n", wrong},
        {"HTTP/1.1 400 Bad Request\r\n", "what is no reply: the line 'HTTP/1.1 400"},
        {"-LOADING it is\r\n", "refuses a command: LOADING it is"},
        {"-\x1b[31m\r\n", "refuses a command: \\x1b[31m"}}) {
    const Status status = look([&](const auto&) { return bytes; });
    EXPECT_EQ(status.code(), Code::kUnavailable) << bytes;
    EXPECT_THAT(status.message(), HasSubstr(reason)) << bytes;
  }
  const Status damaged = look([&](const auto&) { return "*2\r\n:1000\r\n" + record; });
  EXPECT_EQ(damaged.code(), Code::kDataLoss) << damaged.message();
  EXPECT_EQ(look([](const auto&) { return "-OOM full\r\n"; }).code(), Code::kResourceExhausted);
  EXPECT_TRUE(look([](const auto&) { return kTime; }).ok()) << "the next call works";
}

TEST_F(LyingRedisTest, AListHasNoInvalidIds) {
  const auto list = [this](const std::string& reply) {
    tell([reply](const auto&) { return reply; });
    return store_->list(record_list("model", ""), "", 2);
  };
  for (const std::string& ids :
       {std::string("\na b"), std::string("\n../a"), std::string("\na\n\nb"),
        std::string("\na\nb\nc"), "\n" + std::string(200, 'a'), std::string("a b\na"),
        std::string("b\na")}) {
    EXPECT_EQ(list(bulk(ids)).status().code(), Code::kUnavailable) << ids;
  }
  EXPECT_EQ(list(":1\r\n").status().code(), Code::kUnavailable);
  EXPECT_THAT(*list(bulk("\na\nb")), ElementsAre("a", "b"));
  EXPECT_THAT(*list(bulk("")), IsEmpty());
}

TEST_F(LyingRedisTest, TheEvictionPolicyIsCheckedIfItMayBeRead) {
  const auto opened = [this](const std::string& policy) {
    {
      std::lock_guard lock(mutex_);
      policy_ = policy;
    }
    return RedisStore::open({.url = redis_.url()},
                            {.ttl_ms = 3600000, .lease_ms = 300, .timeout_ms = kPatienceMs},
                            real_clock())
        .status();
  };
  const Status refused = opened(bulk("maxmemory:1\r\nmaxmemory_policy:volatile-ttl\r\nx:1\r\n"));
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("the maxmemory-policy 'volatile-ttl', which deletes"));
  EXPECT_TRUE(opened(bulk("maxmemory_policy:noeviction")).ok());
  EXPECT_TRUE(opened(bulk("")).ok());
  EXPECT_TRUE(opened("-NOPERM this user has no permissions to run the 'info' command\r\n").ok());
  EXPECT_EQ(opened(":1\r\n").code(), Code::kUnavailable);
}

TEST_F(LyingRedisTest, SilentAndSlowRepliesTimeOut) {
  open(200);
  Status status = look([](const auto&) { return std::string(); });
  EXPECT_THAT(status.message(), HasSubstr("has not answered within 200 ms"));
  status = look([](const auto&) { return "*2\r\n:1000\r\n$1000\r\nabc"; });
  EXPECT_THAT(status.message(), HasSubstr("has not answered within 200 ms"));
  const std::string seen =
      "*2\r\n:1000\r\n" + bulk(record_text(new_record({"m"}, 1000), kLyingKey));
  tell([=](const auto& words) { return words.size() == 4 ? seen : kOvertaken; });
  status =
      in_time([&] { return store_->begin(kLyingKey, {.owner = "m", .request = "x"}).status(); });
  EXPECT_THAT(status.message(), HasSubstr("has not answered within 200 ms"))
      << "others change the record all the time";
  redis_.pause_ms = 10;
  status = look([](const auto&) { return "+" + std::string(4000, 'x'); });
  EXPECT_THAT(status.message(), HasSubstr("has not answered within 200 ms"));
}

// The clock of this Redis says 1970, unlike that of the server.
TEST_F(LyingRedisTest, LeasesFollowTheTimeOfRedisAndNotTheClockOfTheServer) {
  Record record = new_record({"other/m"}, 1000);
  const Claim claim = {.owner = "other/m", .request = "x"};
  ASSERT_EQ(begin_record(record, claim, 1000, 200, false).outcome, FenceOutcome::kOk);
  const auto begin = [&](int64_t now) {
    const std::string seen =
        "*2\r\n:" + std::to_string(now) + "\r\n" + bulk(record_text(record, kLyingKey));
    tell([seen](const auto& words) { return words.size() == 4 ? seen : kSwapped; });
    const auto begun = store_->begin(kLyingKey, {.owner = "m", .request = "x"});
    EXPECT_TRUE(begun.ok()) << begun.status().message();
    return begun.ok() ? *begun : Begun();
  };
  const Begun busy = begin(1199);
  EXPECT_EQ(busy.outcome, FenceOutcome::kBusy);
  EXPECT_EQ(busy.left_ms, 1);
  EXPECT_EQ(begin(1200).outcome, FenceOutcome::kOk);
}

TEST_F(LyingRedisTest, AConnectionThatEndsBeforeTheReplyIsAnError) {
  Status status = look([](const auto&) { return std::optional<std::string>(); });
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("has closed the connection"));
  EXPECT_TRUE(look([](const auto&) { return kTime; }).ok()) << "the next call has another one";
}

TEST_F(LyingRedisTest, AnEndlessStateIsReadUntilItsReaderRefusesIt) {
  tell([](const auto&) { return bulk(std::string(kRedisPieceBytes, 'x')); });
  size_t bytes = 0;
  Record record;
  record.state = 1;
  Status status = in_time([&] {
    return store_->load(kLyingKey, record, [&](std::span<const std::byte> piece) {
      bytes += piece.size();
      return bytes > 5000000 ? Status(Code::kInvalidArgument, "enough") : Status();
    });
  });
  EXPECT_EQ(status.message(), "enough");
  EXPECT_TRUE(store_->needs_seals()) << "of a state that is not endless";
  for (const char* const lie : {"+OK\r\n", ":3\r\n", "*0\r\n"}) {
    tell([=](const auto&) { return lie; });
    status =
        in_time([&] { return store_->load(kLyingKey, record, [](auto) { return Status(); }); });
    EXPECT_EQ(status.code(), Code::kUnavailable) << lie;
  }
}

TEST_F(LyingRedisTest, AWriteFailsWithoutTheExpectedReply) {
  const Snapshot snapshot = {1, [] { return std::string(); }};
  for (const auto& [set, swap] : {std::pair<std::string, std::string>("+OK\r\n", ":1\r\n"),
                                  {"+OK\r\n", "$-1\r\n"},
                                  {"+OK\r\n", "+1\r\n"},
                                  {"+OK\r\n", "*0\r\n"},
                                  {"+OK\r\n", "*1\r\n:1\r\n"},
                                  {"+OK\r\n", "*2\r\n:0\r\n:1000\r\n"},
                                  {"+OK\r\n", "*2\r\n:1\r\n:-1\r\n"},
                                  {"+OK\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n"},
                                  {"+QUEUED\r\n", kSwapped},
                                  {"$-1\r\n", kSwapped},
                                  {"-MISCONF disk\r\n", kSwapped}}) {
    tell([set = set, swap = swap](const auto& words) -> std::string {
      if (words[0] == "SET") return set;
      return words[0] == "UNLINK" ? ":1\r\n" : words.size() == 4 ? kTime : swap;
    });
    const auto made = store_->create(kLyingKey, {"m"}, &snapshot);
    EXPECT_EQ(made.status().code(), Code::kUnavailable) << set << swap;
  }
}

TEST_F(LyingRedisTest, ARecordIsReadOnlyIfItMayHaveChanged) {
  std::atomic<int> reads{0};
  std::optional<std::string> swapped = kSwapped;
  tell([&](const auto& words) {
    reads += words.size() == 4;
    return words.size() == 4 ? kTime : swapped;  // there is no record
  });
  const auto answer_swaps = [&](const std::optional<std::string>& answer) {
    std::lock_guard lock(mutex_);
    swapped = answer;
  };
  const auto begin = [&] {
    const auto begun = store_->begin(kLyingKey, {.owner = "m", .request = "x"});
    return begun.ok() ? Result<int64_t>(begun->epoch) : begun.status();
  };
  ASSERT_NE(*store_->create(kLyingKey, {"m"}, nullptr), 0);
  EXPECT_EQ(reads, 1);
  for (int call = 0; call < 3; ++call) {
    const int64_t epoch = *begin();
    EXPECT_TRUE(*store_->renew(kLyingKey, {"m", epoch}));
    EXPECT_TRUE(*store_->log(kLyingKey, {"m", epoch}, {2, "entry"}));
  }
  EXPECT_EQ(reads, 1);
  answer_swaps(kOvertaken);
  EXPECT_EQ(*begin(), 0);
  EXPECT_EQ(reads, 2) << "another server has changed the record";

  answer_swaps(kSwapped);
  ASSERT_NE(*store_->create(kLyingKey, {"m"}, nullptr), 0);
  EXPECT_EQ(reads, 3);
  answer_swaps(std::nullopt);
  EXPECT_EQ(begin().status().code(), Code::kUnavailable);
  answer_swaps(kSwapped);
  EXPECT_EQ(*begin(), 0);
  EXPECT_EQ(reads, 4) << "the change may have happened although its reply was lost";
}

TEST(RedisLogin, AnErrorDoesNotShowThePassword) {
  LyingRedis redis([](const auto& words) {
    return "-ERR unknown command 'AUTH', with args beginning with: '" + words[1] + "'\r\n";
  });
  const RedisOptions options = {
      .url = redis.url(), .password = "secret", .timeout_ms = kPatienceMs};
  const Status status = RedisClient::open(options).status();
  EXPECT_THAT(status.message(),
              EndsWith("refuses a login with the password of storage.password_file"));
}

TEST(RedisLogin, AHandshakeThatIsNotAnsweredEndsInTime) {
  const LyingRedis redis([](const auto&) { return std::string(); });
  RedisOptions options = {.url = redis.url(), .tls = *redis_tls({}), .timeout_ms = 100};
  options.url.host = "localhost";
  options.url.tls = true;
  EXPECT_EQ(RedisClient::open(options).status().code(), Code::kUnavailable);
  options.tls = nullptr;
  EXPECT_EQ(RedisClient::open(options).status().code(), Code::kUnavailable) << "never without TLS";
}

TEST(RedisLogin, NamesTheUserAndTheDatabaseFirst) {
  std::mutex mutex;
  std::vector<std::string> heard;
  LyingRedis redis([&](const auto& words) {
    std::lock_guard lock(mutex);
    for (const std::string& word : words) heard.push_back(word);
    return "+OK\r\n";
  });
  ASSERT_TRUE(redis.is_up());
  RedisOptions options = {.url = redis.url(), .password = "secret", .timeout_ms = kPatienceMs};
  options.url.user = "ada";
  options.url.database = 3;
  ASSERT_TRUE(RedisClient::open(options).ok());
  std::lock_guard lock(mutex);
  EXPECT_THAT(heard, ElementsAre("AUTH", "ada", "secret", "SELECT", "3"));
}

}  // namespace
}  // namespace runnel
