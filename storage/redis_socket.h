// A connection to Redis as a stream of bytes: TCP or a unix socket, with or without TLS. No wait
// lasts beyond a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/openssl.h"
#include "base/status.h"
#include "base/store_url.h"

namespace runnel {

struct RedisOptions {
  StoreUrl url;
  std::string password = {};  // empty: Redis asks for none
  std::string ca = {};        // file of authorities; empty: those of the system
  int64_t timeout_ms = 1000;  // of each step
};

// "Redis at HOST:PORT", for messages.
std::string redis_name(const StoreUrl& url);

using RedisDeadline = std::chrono::steady_clock::time_point;

class RedisSocket {
 public:
  // `options` outlives it. UNAVAILABLE, and INVALID_ARGUMENT if the authorities cannot be read. The
  // system looks up a host's name, with a time limit of its own.
  static Result<std::unique_ptr<RedisSocket>> open(const RedisOptions& options,
                                                   RedisDeadline until);
  RedisSocket(const RedisSocket&) = delete;
  RedisSocket& operator=(const RedisSocket&) = delete;
  ~RedisSocket();

  // UNAVAILABLE names Redis. After a failure the connection is of no use.
  Status send(std::string_view bytes, RedisDeadline until);
  // Reads at least one byte.
  Result<size_t> receive(std::span<char> to, RedisDeadline until);
  // Whether the connection is open, without bytes that nobody has asked for.
  bool is_quiet() const;

 private:
  explicit RedisSocket(const RedisOptions& options) : options_(options) {}

  Status connect(RedisDeadline until);
  Status connect_to(const void* address, size_t size, int family, RedisDeadline until);
  Status start_tls(RedisDeadline until);
  Status wait_for(short event, RedisDeadline until) const;
  Status send_plain(std::string_view bytes, RedisDeadline until);
  Result<size_t> receive_plain(std::span<char> to, RedisDeadline until);
  Status send_encrypted(RedisDeadline until);
  Status receive_encrypted(RedisDeadline until);
  Status failed(const std::string& what) const;

  const RedisOptions& options_;
  int socket_ = -1;
  openssl::Context context_;
  openssl::Connection tls_;  // null: plain. It reads and writes memory, not the socket
};

}  // namespace runnel
