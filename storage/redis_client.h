// Calls Redis: a connection with its commands and replies, and a pool of connections. A thread
// takes a connection from the pool for as long as it needs one.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "storage/redis_socket.h"
#include "storage/resp.h"

namespace runnel {

// UNAVAILABLE: no reply came in time, or the bytes are not a reply; the connection is then
// unusable. If Redis refuses a command, the status is RESOURCE_EXHAUSTED if its memory is full,
// DATA_LOSS for a key of another type, else UNAVAILABLE.
class RedisClient {
 public:
  // `options` must outlive the client.
  static Result<std::unique_ptr<RedisClient>> open(const RedisOptions& options);

  // Starts the time limit of `options` again, which applies to all later commands and replies
  // together.
  void restart_time();
  // Sends a command, and waits for no reply.
  Status send(std::span<const std::string_view> words);
  // The reply to the oldest unanswered command. It must be of this kind or kNil.
  Result<RespValue> receive(RespKind kind);
  // send() and receive().
  Result<RespValue> ask(std::span<const std::string_view> words, RespKind kind);
  // The number of commands whose reply has not been received.
  size_t unanswered() const { return unanswered_; }
  // Whether a call has failed in such a way that the connection is unusable.
  bool is_broken() const { return is_broken_; }
  // Whether the next call can use the connection.
  bool is_usable() const;
  // The status for a reply of the wrong kind.
  Status wrong_reply();

 private:
  RedisClient(const RedisOptions& options, std::unique_ptr<RedisSocket> socket);

  Status log_in();

  const RedisOptions& options_;
  const std::unique_ptr<RedisSocket> socket_;
  RedisDeadline until_{};
  RespReader reader_;
  size_t unanswered_ = 0;
  bool is_broken_ = false;
};

class RedisPool {
 public:
  explicit RedisPool(RedisOptions options) : options_(std::move(options)) {}

  // A connection, which returns to the pool when its last pointer is gone. The pool must outlive
  // it. After a failure to connect, tries during a pause fail with the same status.
  Result<std::shared_ptr<RedisClient>> take();

 private:
  std::unique_ptr<RedisClient> take_idle();
  Result<std::unique_ptr<RedisClient>> connect();
  void give_back(std::unique_ptr<RedisClient> client);

  const RedisOptions options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<RedisClient>> idle_;
  std::chrono::milliseconds pause_{0};  // after the last failure; 0: there was none
  RedisDeadline paused_until_{};
  Status failure_;
};

}  // namespace runnel
