// A connection to Redis as a stream of bytes: TCP or a unix socket, with or without TLS. No
// operation waits beyond its deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/openssl.h"
#include "base/status.h"
#include "base/store_url.h"
#include "storage/host_lookup.h"

namespace runnel {

struct RedisOptions {
  StoreUrl url;
  std::string password = {};          // empty: Redis asks for none
  std::shared_ptr<SSL_CTX> tls = {};  // of redis_tls(), if the URL asks for TLS
  int64_t timeout_ms = 1000;          // of an operation, and of each piece of a state
  std::shared_ptr<HostLookup> hosts = std::make_shared<HostLookup>();
};

// Paths of PEM files.
struct RedisTlsFiles {
  std::string ca = {};    // the authorities to trust; empty: those of the system
  std::string cert = {};  // the certificate to show to Redis; empty: none
  std::string key = {};   // its private key
};

// INVALID_ARGUMENT if a file cannot be used. Other errors are those of read_identity().
Result<std::shared_ptr<SSL_CTX>> redis_tls(const RedisTlsFiles& files);

// "Redis at HOST:PORT", for messages.
std::string redis_name(const StoreUrl& url);

using RedisDeadline = std::chrono::steady_clock::time_point;

// The process must ignore SIGPIPE: OpenSSL writes without MSG_NOSIGNAL.
class RedisSocket {
 public:
  // `options` outlives it. UNAVAILABLE.
  static Result<std::unique_ptr<RedisSocket>> open(const RedisOptions& options,
                                                   RedisDeadline until);
  RedisSocket(const RedisSocket&) = delete;
  RedisSocket& operator=(const RedisSocket&) = delete;
  ~RedisSocket();

  // UNAVAILABLE names Redis. After a failure the connection is unusable.
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
  Result<size_t> move_bytes(short event, RedisDeadline until,
                            const std::function<ssize_t()>& operation) const;
  Status wait_for(short event, RedisDeadline until) const;
  Status reason_of(const Status& failure) const;
  Status failed(const std::string& what) const;
  Status late() const;

  const RedisOptions& options_;
  int socket_ = -1;
  openssl::Connection tls_;  // null: plain
};

}  // namespace runnel
