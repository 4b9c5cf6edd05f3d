#include "storage/redis_client.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/hex.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr auto kFirstPause = std::chrono::milliseconds(50);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);
constexpr auto kTryAgain = std::chrono::seconds(1);
constexpr size_t kMostErrorText = 200;

std::string sha1_of(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return hex(std::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

}  // namespace

RedisScript::RedisScript(std::string lua) : text(std::move(lua)), sha(sha1_of(text)) {}

// --- RedisClient ---

Result<std::unique_ptr<RedisClient>> RedisClient::open(const RedisOptions& options) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options.timeout_ms);
  auto socket = RedisSocket::open(options, until);
  if (!socket.ok()) return socket.status();
  std::unique_ptr<RedisClient> client(new RedisClient(options, std::move(*socket)));
  if (Status s = client->log_in(); !s.ok()) return s;
  return client;
}

RedisClient::RedisClient(const RedisOptions& options, std::unique_ptr<RedisSocket> socket)
    : options_(options),
      socket_(std::move(socket)),
      reader_([this](std::span<char> to) { return socket_->receive(to, until_); }) {}

RedisDeadline RedisClient::deadline() const {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.timeout_ms);
}

bool RedisClient::is_usable() const {
  return !is_broken_ && unanswered_ == 0 && !reader_.has_more() && socket_->is_quiet();
}

Status RedisClient::log_in() {
  if (!options_.password.empty()) {
    std::vector<std::string_view> words = {"AUTH", options_.password};
    if (!options_.url.user.empty()) words.insert(words.begin() + 1, options_.url.user);
    if (Status s = send(words); !s.ok()) return s;
    const auto reply = receive_any();
    if (!reply.ok()) return reply.status();
    if (reply->kind != RespKind::kText) return refused_password(*reply);
  }
  if (options_.url.database == 0) return {};
  const std::string number = std::to_string(options_.url.database);
  const std::array<std::string_view, 2> words = {"SELECT", number};
  return ask(words, RespKind::kText).status();
}

// Without the rest of the error, which may repeat the password.
Status RedisClient::refused_password(const RespValue& reply) const {
  const std::string kind = printable(reply.text.substr(0, reply.text.find(' ')), kMostErrorText);
  return {Code::kUnavailable,
          redis_name(options_.url) + " refuses the password of storage.password_file: " + kind};
}

Status RedisClient::send(std::span<const std::string_view> words) {
  Status status = socket_->send(resp_command(words), deadline());
  is_broken_ = is_broken_ || !status.ok();
  if (status.ok()) ++unanswered_;
  return status;
}

Result<RespValue> RedisClient::receive_any() {
  until_ = deadline();
  auto reply = reader_.next();
  is_broken_ = is_broken_ || !reply.ok();
  if (reply.ok()) --unanswered_;
  if (reply.status().code() != Code::kDataLoss) return reply;
  return Status(Code::kUnavailable, redis_name(options_.url) +
                                        " has sent what is no reply: " + reply.status().message());
}

Result<RespValue> RedisClient::checked(Result<RespValue> reply, RespKind kind) {
  if (!reply.ok() || reply->kind == kind || reply->kind == RespKind::kNil) return reply;
  return unexpected(*reply);
}

Status RedisClient::unexpected(const RespValue& reply) {
  if (reply.kind != RespKind::kError) {
    is_broken_ = true;
    return {Code::kUnavailable,
            redis_name(options_.url) + " has sent a reply of another kind than the command has"};
  }
  const bool is_full = reply.text.starts_with("OOM ");
  const bool is_foreign = reply.text.starts_with("WRONGTYPE ");
  return {
      is_full      ? Code::kResourceExhausted
      : is_foreign ? Code::kDataLoss
                   : Code::kUnavailable,
      redis_name(options_.url) + " refuses a command: " + printable(reply.text, kMostErrorText)};
}

Result<RespValue> RedisClient::receive(RespKind kind) { return checked(receive_any(), kind); }

Result<RespValue> RedisClient::ask(std::span<const std::string_view> words, RespKind kind) {
  if (Status s = send(words); !s.ok()) return s;
  return receive(kind);
}

Result<RespValue> RedisClient::run(const RedisScript& script, std::string_view key,
                                   std::span<const std::string_view> arguments, RespKind kind) {
  std::vector<std::string_view> words = {"EVALSHA", script.sha, "1", key};
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (Status s = send(words); !s.ok()) return s;
  auto reply = receive_any();
  if (reply.ok() && reply->kind == RespKind::kError && reply->text.starts_with("NOSCRIPT")) {
    words[0] = "EVAL";
    words[1] = script.text;
    if (Status s = send(words); !s.ok()) return s;
    reply = receive_any();
  }
  return checked(std::move(reply), kind);
}

// --- RedisPool ---

Result<std::shared_ptr<RedisClient>> RedisPool::take() {
  std::unique_ptr<RedisClient> client = take_idle();
  // Redis may have ended since, or have closed the connection.
  while (client != nullptr && !client->is_usable()) client = take_idle();
  if (client == nullptr) {
    auto opened = connect();
    if (!opened.ok()) return opened.status();
    client = std::move(*opened);
  }
  return std::shared_ptr<RedisClient>(client.release(), [this](RedisClient* used) {
    give_back(std::unique_ptr<RedisClient>(used));
  });
}

std::unique_ptr<RedisClient> RedisPool::take_idle() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<RedisClient> client = std::move(idle_.back());
  idle_.pop_back();
  return client;
}

Result<std::unique_ptr<RedisClient>> RedisPool::connect() {
  {
    std::lock_guard lock(mutex_);
    if (std::chrono::steady_clock::now() < paused_until_) return failure_;
  }
  auto client = RedisClient::open(options_);
  std::lock_guard lock(mutex_);
  pause_ = client.ok() ? std::chrono::milliseconds(0)
                       : std::clamp(2 * pause_, kFirstPause, kLongestPause);
  if (client.ok()) {
    paused_until_ = {};
    return client;
  }
  paused_until_ = std::chrono::steady_clock::now() + pause_;
  failure_ = client.status();
  if (failure_.code() == Code::kUnavailable) failure_.with_retry_after(kTryAgain);
  return failure_;
}

// Without memory for it the connection is closed.
void RedisPool::give_back(std::unique_ptr<RedisClient> client) {
  if (!client->is_usable()) return;
  try {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(client));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace runnel
