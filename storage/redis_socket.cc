#include "storage/redis_socket.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/certificate.h"
#include "base/text.h"

namespace runnel {
namespace {

using std::chrono::steady_clock;

constexpr int kIdleSeconds = 30;  // before the system probes the peer

// Must be called before anything else can change `errno`.
std::string tls_error() {
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  return reason == nullptr ? strerror(errno) : reason;
}

Status show_certificate(const RedisTlsFiles& files, SSL_CTX* context) {
  const auto identity = read_identity(files.cert, files.key, std::chrono::system_clock::now());
  if (!identity.ok()) return identity.status();
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context, files.cert.c_str()) == 1 &&
      SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) == 1) {
    return {};
  }
  return invalid_argument(quote(files.cert, 300) + " cannot be used for TLS: " + tls_error());
}

}  // namespace

Result<std::shared_ptr<SSL_CTX>> redis_tls(const RedisTlsFiles& files) {
  const std::string& ca = files.ca;
  ERR_clear_error();
  openssl::Context context(SSL_CTX_new(TLS_client_method()));
  const bool has_authorities =
      context != nullptr &&
      (ca.empty() ? SSL_CTX_set_default_verify_paths(context.get())
                  : SSL_CTX_load_verify_locations(context.get(), ca.c_str(), nullptr)) == 1;
  if (!has_authorities) {
    return invalid_argument("storage.ca is " + quote(ca, 300) +
                            ", whose certificates cannot be read: " + tls_error());
  }
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (!files.cert.empty()) {
    if (Status s = show_certificate(files, context.get()); !s.ok()) return s;
  }
  return std::shared_ptr<SSL_CTX>(std::move(context));
}

std::string redis_name(const StoreUrl& url) {
  if (!url.path.empty()) return "Redis at " + quote(url.path, 120);
  const bool is_v6 = url.host.find(':') != url.host.npos;
  return "Redis at " + (is_v6 ? "[" + url.host + "]" : url.host) + ":" + url.port;
}

Status RedisSocket::failed(const std::string& what) const {
  return {Code::kUnavailable, redis_name(options_.url) + " " + what};
}

Status RedisSocket::late() const {
  return failed("has not answered within " + std::to_string(options_.timeout_ms) +
                " ms (storage.timeout_ms)");
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

// Each address of a host gets a share of the time, so that an address that does not answer leaves
// time for the others.
Status RedisSocket::connect(RedisDeadline until) {
  const StoreUrl& url = options_.url;
  if (!url.path.empty()) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    url.path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return connect_to(&address, sizeof(address), AF_UNIX, until);
  }
  const auto found = options_.hosts->find(url.host, url.port, until);
  if (!found.ok()) return failed("is not found: " + found.status().message());
  const addrinfo* const list = found->get();
  int left = 0;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) ++left;
  Status status;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next, --left) {
    const auto now = steady_clock::now();
    status = connect_to(at->ai_addr, at->ai_addrlen, at->ai_family, now + (until - now) / left);
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
  if (errno != EINPROGRESS && errno != EINTR) return unreachable(errno);
  if (Status s = wait_for(POLLOUT, until); !s.ok()) return s;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? Status() : unreachable(error);
}

Status RedisSocket::start_tls(RedisDeadline until) {
  ERR_clear_error();
  tls_.reset(SSL_new(options_.tls.get()));
  const char* const host = options_.url.host.c_str();
  bool is_ready = tls_ != nullptr && SSL_set_fd(tls_.get(), socket_) == 1;
  // A certificate has addresses in another field than names, and SNI does not carry addresses.
  if (is_ready && X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()), host) != 1) {
    SSL_set_hostflags(tls_.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    is_ready =
        SSL_set1_host(tls_.get(), host) == 1 && SSL_set_tlsext_host_name(tls_.get(), host) == 1;
  }
  if (!is_ready) return failed("cannot be called by TLS: " + tls_error());
  const auto done = move_bytes(POLLIN, until, [this] { return SSL_connect(tls_.get()); });
  const long verified = SSL_get_verify_result(tls_.get());
  if (done.ok() || verified == X509_V_OK) return done.status();
  return failed(std::string("is refused by TLS: ") + X509_verify_cert_error_string(verified));
}

Status RedisSocket::wait_for(short event, RedisDeadline until) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) return late();
    pollfd waiting = {.fd = socket_, .events = event, .revents = 0};
    const int count = poll(&waiting, 1, static_cast<int>(left.count()));
    if (count > 0) return {};
    if (count < 0 && errno != EINTR) return failed(strerror(errno));
  }
}

// Tries an operation until it has moved bytes. A plain connection waits for `event`; TLS says
// itself which event it needs. The deadline also ends a reply that arrives byte by byte.
Result<size_t> RedisSocket::move_bytes(short event, RedisDeadline until,
                                       const std::function<ssize_t()>& operation) const {
  while (steady_clock::now() < until) {
    ERR_clear_error();
    const ssize_t count = operation();
    if (count > 0) return static_cast<size_t>(count);
    const int error = tls_ == nullptr ? 0 : SSL_get_error(tls_.get(), static_cast<int>(count));
    if (error == SSL_ERROR_ZERO_RETURN || (tls_ == nullptr && count == 0)) {
      return failed("has closed the connection");
    }
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
      event = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    } else if (tls_ != nullptr) {
      return failed("has broken TLS: " + tls_error());
    } else if (errno != EAGAIN && errno != EINTR) {
      return failed(std::string("has closed the connection: ") + strerror(errno));
    }
    if (Status s = wait_for(event, until); !s.ok()) return s;
  }
  return late();
}

Status RedisSocket::send(std::string_view bytes, RedisDeadline until) {
  while (!bytes.empty()) {
    const auto count = move_bytes(POLLOUT, until, [&]() -> ssize_t {
      if (tls_ == nullptr) return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      return SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()));
    });
    if (!count.ok()) return tls_ == nullptr ? count.status() : reason_of(count.status());
    bytes.remove_prefix(*count);
  }
  return {};
}

// In TLS 1.3, a server rejects a client's certificate only after the handshake: it sends an alert
// and closes the connection. Then a write fails without the reason, which the next read gets.
Status RedisSocket::reason_of(const Status& failure) const {
  ERR_clear_error();
  char unused = 0;
  const int count = SSL_read(tls_.get(), &unused, 1);
  if (count > 0 || SSL_get_error(tls_.get(), count) != SSL_ERROR_SSL) return failure;
  return failed("has broken TLS: " + tls_error());
}

Result<size_t> RedisSocket::receive(std::span<char> to, RedisDeadline until) {
  return move_bytes(POLLIN, until, [&]() -> ssize_t {
    if (tls_ == nullptr) return recv(socket_, to.data(), to.size(), 0);
    return SSL_read(tls_.get(), to.data(), static_cast<int>(to.size()));
  });
}

bool RedisSocket::is_quiet() const {
  if (tls_ != nullptr && SSL_has_pending(tls_.get()) == 1) return false;
  char byte = 0;
  return recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

}  // namespace runnel
