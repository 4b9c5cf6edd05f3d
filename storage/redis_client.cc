#include "storage/redis_client.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

using std::chrono::steady_clock;

constexpr auto kFirstPause = std::chrono::milliseconds(50);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);
constexpr auto kTryAgain = std::chrono::seconds(1);
constexpr size_t kMostErrorText = 200;

}  // namespace

// --- RedisClient ---

Result<std::unique_ptr<RedisClient>> RedisClient::open(const RedisOptions& options) {
  const auto until = steady_clock::now() + std::chrono::milliseconds(options.timeout_ms);
  auto socket = RedisSocket::open(options, until);
  if (!socket.ok()) return socket.status();
  std::unique_ptr<RedisClient> client(new RedisClient(options, std::move(*socket)));
  client->until_ = until;
  if (Status s = client->log_in(); !s.ok()) return s;
  return client;
}

RedisClient::RedisClient(const RedisOptions& options, std::unique_ptr<RedisSocket> socket)
    : options_(options),
      socket_(std::move(socket)),
      reader_([this](std::span<char> to) { return socket_->receive(to, until_); }) {}

void RedisClient::restart_time() {
  until_ = steady_clock::now() + std::chrono::milliseconds(options_.timeout_ms);
}

bool RedisClient::is_usable() const {
  return !is_broken_ && unanswered_ == 0 && !reader_.has_more() && socket_->is_quiet();
}

// Also selects database 0, because a hanging Redis accepts connections but does not answer.
Status RedisClient::log_in() {
  const StoreUrl& url = options_.url;
  if (!options_.password.empty()) {
    const std::string_view user = url.user.empty() ? std::string_view("default") : url.user;
    const std::array<std::string_view, 3> words = {"AUTH", user, options_.password};
    const Status status = ask(words, RespKind::kText).status();
    if (is_broken_) return status;
    // Omits the error of Redis, which may repeat the password.
    if (!status.ok()) {
      return {Code::kUnavailable,
              redis_name(url) + " refuses a login with the password of storage.password_file"};
    }
  }
  const std::string number = std::to_string(url.database);
  const std::array<std::string_view, 2> words = {"SELECT", number};
  return ask(words, RespKind::kText).status();
}

Status RedisClient::send(std::span<const std::string_view> words) {
  Status status = socket_->send(resp_command(words), until_);
  is_broken_ = is_broken_ || !status.ok();
  if (status.ok()) ++unanswered_;
  return status;
}

Status RedisClient::wrong_reply() {
  is_broken_ = true;
  return {Code::kUnavailable,
          redis_name(options_.url) + " has sent a reply of another kind than the command has"};
}

Result<RespValue> RedisClient::receive(RespKind kind) {
  auto reply = reader_.next();
  if (!reply.ok()) {
    is_broken_ = true;
    if (reply.status().code() != Code::kDataLoss) return reply;
    return Status(Code::kUnavailable, redis_name(options_.url) + " has sent what is no reply: " +
                                          reply.status().message());
  }
  --unanswered_;
  if (reply->kind == kind || reply->kind == RespKind::kNil) return reply;
  if (reply->kind != RespKind::kError) return wrong_reply();
  const bool is_full = reply->text.starts_with("OOM ");
  const bool is_foreign = reply->text.starts_with("WRONGTYPE ");
  return Status(
      is_full      ? Code::kResourceExhausted
      : is_foreign ? Code::kDataLoss
                   : Code::kUnavailable,
      redis_name(options_.url) + " refuses a command: " + printable(reply->text, kMostErrorText));
}

Result<RespValue> RedisClient::ask(std::span<const std::string_view> words, RespKind kind) {
  if (Status s = send(words); !s.ok()) return s;
  return receive(kind);
}

// --- RedisPool ---

Result<std::shared_ptr<RedisClient>> RedisPool::take() {
  std::unique_ptr<RedisClient> client = take_idle();
  if (client == nullptr) {
    auto opened = connect();
    if (!opened.ok()) return opened.status();
    client = std::move(*opened);
  }
  client->restart_time();
  return std::shared_ptr<RedisClient>(client.release(), [this](RedisClient* used) {
    give_back(std::unique_ptr<RedisClient>(used));
  });
}

// Redis may have ended in the meantime, or may have closed the connection.
std::unique_ptr<RedisClient> RedisPool::take_idle() {
  std::lock_guard lock(mutex_);
  while (!idle_.empty()) {
    std::unique_ptr<RedisClient> client = std::move(idle_.back());
    idle_.pop_back();
    if (client->is_usable()) return client;
  }
  return nullptr;
}

Result<std::unique_ptr<RedisClient>> RedisPool::connect() {
  {
    std::lock_guard lock(mutex_);
    if (steady_clock::now() < paused_until_) return failure_;
  }
  auto client = RedisClient::open(options_);
  std::lock_guard lock(mutex_);
  if (client.ok()) {
    pause_ = {};
    paused_until_ = {};
    return client;
  }
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  paused_until_ = steady_clock::now() + pause_;
  failure_ = client.status();
  return failure_.with_retry_after(kTryAgain);
}

// If one connection hangs or has ended, the others may have, too: if another Redis has replaced
// this one, each of them would cost a call. Without memory for it, a connection is closed.
void RedisPool::give_back(std::unique_ptr<RedisClient> client) {
  std::vector<std::unique_ptr<RedisClient>> stale;
  const bool is_usable = client->is_usable();
  try {
    std::lock_guard lock(mutex_);
    if (client->is_broken()) stale.swap(idle_);
    if (is_usable) idle_.push_back(std::move(client));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace runnel
