#include "storage/redis_socket.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

constexpr int kIdleSeconds = 30;  // before the system asks whether the other side is there
constexpr size_t kMostTlsBytes = 16 << 10;

bool is_interrupted() { return errno == EINTR; }
bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

std::string tls_error() {
  const unsigned long error = ERR_get_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "no reason is given" : reason;
}

}  // namespace

std::string redis_name(const StoreUrl& url) {
  if (!url.path.empty()) return "Redis at " + quote(url.path, 120);
  const bool is_v6 = url.host.find(':') != url.host.npos;
  return "Redis at " + (is_v6 ? "[" + url.host + "]" : url.host) + ":" + url.port;
}

Status RedisSocket::failed(const std::string& what) const {
  return {Code::kUnavailable, redis_name(options_.url) + " " + what};
}

Result<std::unique_ptr<RedisSocket>> RedisSocket::open(const RedisOptions& options,
                                                       RedisDeadline until) {
  std::unique_ptr<RedisSocket> socket(new RedisSocket(options));
  if (Status s = socket->connect(until); !s.ok()) return s;
  if (options.url.tls) {
    if (Status s = socket->start_tls(until); !s.ok()) return s;
  }
  return socket;
}

RedisSocket::~RedisSocket() {
  if (socket_ >= 0) close(socket_);
}

// --- The socket ---

Status RedisSocket::connect(RedisDeadline until) {
  const StoreUrl& url = options_.url;
  if (!url.path.empty()) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    url.path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return connect_to(&address, sizeof(address), AF_UNIX, until);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &list);
  if (error != 0) return failed(std::string("is not found: ") + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(list, freeaddrinfo);
  Status status;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    status = connect_to(at->ai_addr, at->ai_addrlen, at->ai_family, until);
    if (status.ok()) return status;
  }
  return status;
}

Status RedisSocket::connect_to(const void* address, size_t size, int family, RedisDeadline until) {
  const auto unreachable = [this](int error) {
    return failed(std::string("cannot be reached: ") + strerror(error));
  };
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  socket_ = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return unreachable(errno);
  const auto set = [this](int level, int option, int value) {
    setsockopt(socket_, level, option, &value, sizeof(value));
  };
  if (family != AF_UNIX) {
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  }
  const auto* const to = static_cast<const sockaddr*>(address);
  if (::connect(socket_, to, static_cast<socklen_t>(size)) == 0) return {};
  if (errno != EINPROGRESS && !is_interrupted()) return unreachable(errno);
  if (Status s = wait_for(POLLOUT, until); !s.ok()) return s;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? Status() : unreachable(error);
}

Status RedisSocket::wait_for(short event, RedisDeadline until) const {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd waiting = {.fd = socket_, .events = event, .revents = 0};
    const int count = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (count > 0) return {};
    if (count < 0 && !is_interrupted()) return failed(strerror(errno));
    if (count == 0) {
      return failed("has not answered within " + std::to_string(options_.timeout_ms) +
                    " ms (storage.timeout_ms)");
    }
  }
}

Status RedisSocket::send_plain(std::string_view bytes, RedisDeadline until) {
  while (!bytes.empty()) {
    if (Status s = wait_for(POLLOUT, until); !s.ok()) return s;
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && (would_block() || is_interrupted())) continue;
    if (count < 0) return failed(std::string("has closed the connection: ") + strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

// Bytes that come too late are refused: a reply that comes byte by byte must end in time, too.
Result<size_t> RedisSocket::receive_plain(std::span<char> to, RedisDeadline until) {
  for (;;) {
    if (Status s = wait_for(POLLIN, until); !s.ok()) return s;
    const ssize_t count = recv(socket_, to.data(), to.size(), 0);
    if (count > 0 && std::chrono::steady_clock::now() < until) return static_cast<size_t>(count);
    if (count == 0) return failed("has closed the connection");
    if (count < 0 && !would_block() && !is_interrupted()) {
      return failed(std::string("has closed the connection: ") + strerror(errno));
    }
    if (count > 0) return failed("takes too long to answer (storage.timeout_ms)");
  }
}

bool RedisSocket::is_quiet() const {
  char byte = 0;
  return recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && would_block();
}

// --- TLS ---

Status RedisSocket::start_tls(RedisDeadline until) {
  ERR_clear_error();
  context_.reset(SSL_CTX_new(TLS_client_method()));
  if (context_ == nullptr) return failed("cannot be called by TLS: " + tls_error());
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  const bool has_authorities =
      options_.ca.empty()
          ? SSL_CTX_set_default_verify_paths(context_.get()) == 1
          : SSL_CTX_load_verify_locations(context_.get(), options_.ca.c_str(), nullptr) == 1;
  if (!has_authorities) {
    return invalid_argument("storage.ca is " + quote(options_.ca, 300) +
                            ", whose certificates cannot be read: " + tls_error());
  }
  tls_.reset(SSL_new(context_.get()));
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  if (tls_ == nullptr || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    return failed("cannot be called by TLS: " + tls_error());
  }
  SSL_set_bio(tls_.get(), in, out);
  const char* const host = options_.url.host.c_str();
  // An address is in another field of a certificate than a name, and is not asked for by SNI.
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()), host) != 1) {
    ERR_clear_error();
    SSL_set1_host(tls_.get(), host);
    SSL_set_tlsext_host_name(tls_.get(), host);
  }
  for (;;) {
    const int done = SSL_connect(tls_.get());
    const int error = SSL_get_error(tls_.get(), done);
    const long verified = SSL_get_verify_result(tls_.get());
    const std::string reason =
        verified != X509_V_OK ? X509_verify_cert_error_string(verified) : tls_error();
    const Status sent = send_encrypted(until);  // also what tells Redis of a refusal
    if (done != 1 && error != SSL_ERROR_WANT_READ) return failed("is refused by TLS: " + reason);
    if (done == 1 || !sent.ok()) return sent;
    if (Status s = receive_encrypted(until); !s.ok()) return s;
  }
}

// Sends what TLS has written.
Status RedisSocket::send_encrypted(RedisDeadline until) {
  BIO* const out = SSL_get_wbio(tls_.get());
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(out, &bytes);
  if (count <= 0) return {};
  Status status = send_plain({bytes, static_cast<size_t>(count)}, until);
  static_cast<void>(BIO_reset(out));
  return status;
}

// Receives bytes for TLS to read.
Status RedisSocket::receive_encrypted(RedisDeadline until) {
  std::array<char, kMostTlsBytes> bytes;
  const auto count = receive_plain(bytes, until);
  if (!count.ok()) return count.status();
  if (BIO_write(SSL_get_rbio(tls_.get()), bytes.data(), static_cast<int>(*count)) > 0) return {};
  return failed("cannot be read by TLS: " + tls_error());
}

// In pieces, so that TLS does not hold all of it.
Status RedisSocket::send(std::string_view bytes, RedisDeadline until) {
  if (tls_ == nullptr) return send_plain(bytes, until);
  while (!bytes.empty()) {
    ERR_clear_error();
    const std::string_view piece = bytes.substr(0, kMostTlsBytes);
    if (SSL_write(tls_.get(), piece.data(), static_cast<int>(piece.size())) <= 0) {
      return failed("cannot be written to by TLS: " + tls_error());
    }
    if (Status s = send_encrypted(until); !s.ok()) return s;
    bytes.remove_prefix(piece.size());
  }
  return {};
}

Result<size_t> RedisSocket::receive(std::span<char> to, RedisDeadline until) {
  if (tls_ == nullptr) return receive_plain(to, until);
  for (;;) {
    ERR_clear_error();
    const int count = SSL_read(tls_.get(), to.data(), static_cast<int>(to.size()));
    if (count > 0) return static_cast<size_t>(count);
    const int error = SSL_get_error(tls_.get(), count);
    if (error == SSL_ERROR_ZERO_RETURN) return failed("has closed the connection");
    if (error != SSL_ERROR_WANT_READ) return failed("cannot be read by TLS: " + tls_error());
    if (Status s = send_encrypted(until); !s.ok()) return s;
    if (Status s = receive_encrypted(until); !s.ok()) return s;
  }
}

}  // namespace runnel
