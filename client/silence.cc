#include "client/silence.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include "base/text.h"
#include "client/address.h"
#include "client/handshake.h"

namespace runnel {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPiece{100};  // between checks for an interrupt
constexpr const char* kStartOne =
    "; start one with 'runnel serve BUNDLE', or name another with --server";

// The time until then, at least 1 ms, because 0 is no limit for a socket.
milliseconds left_until(steady_clock::time_point until) {
  return std::max(std::chrono::ceil<milliseconds>(until - steady_clock::now()), milliseconds(1));
}

// A connected socket, which the destructor closes, or the number of the error; ETIMEDOUT after
// `at_most`, or soon after `stopped` returns true.
class Probe {
 public:
  Probe(const addrinfo& target, milliseconds at_most, const std::function<bool()>& stopped)
      : socket_(::socket(target.ai_family, target.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (socket_ < 0 || ::connect(socket_, target.ai_addr, target.ai_addrlen) != 0) error_ = errno;
    if (error_ == EINPROGRESS) await(at_most, stopped);
    if (error_ == 0) make_blocking(at_most);
  }
  ~Probe() {
    if (socket_ >= 0) close(socket_);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  int error() const { return error_; }
  int socket() const { return socket_; }

 private:
  void await(milliseconds at_most, const std::function<bool()>& stopped) {
    const auto until = steady_clock::now() + at_most;
    pollfd file = {.fd = socket_, .events = POLLOUT, .revents = 0};
    int ready = 0;
    do {
      const milliseconds piece = std::min(left_until(until), kPiece);
      ready = poll(&file, 1, static_cast<int>(piece.count()));
    } while (ready != 1 && !stopped() && steady_clock::now() < until);
    error_ = ETIMEDOUT;
    socklen_t size = sizeof error_;
    if (ready == 1) getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error_, &size);
  }
  // Makes reads and writes blocking, each for at most `at_most`.
  void make_blocking(milliseconds at_most) const {
    const timeval time = {.tv_sec = at_most.count() / 1000,
                          .tv_usec = at_most.count() % 1000 * 1000};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) & ~O_NONBLOCK);
  }

  const int socket_;
  int error_ = 0;
};

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

Status not_answering(const std::string& address, double seconds) {
  return {Code::kDeadlineExceeded,
          address + " accepts connections, but has not answered within " + seconds_text(seconds) +
              "; see whether its process is stopped or overloaded, or give it more time with "
              "--timeout"};
}

Status no_server(const std::string& address) {
  return {Code::kUnavailable, "no server answers at " + address + kStartOne};
}

Status no_connection(const std::string& address, int error, double seconds) {
  if (error == ECONNREFUSED) return no_server(address);
  if (error == ETIMEDOUT) {
    return {Code::kDeadlineExceeded,
            "no connection to " + address + " within " + seconds_text(seconds) +
                "; is the address right, and does a firewall let it pass?"};
  }
  return {Code::kUnavailable, "no connection to " + address + ": " +
                                  std::generic_category().message(error) + kStartOne};
}

// The peer accepts connections, but gRPC could not talk to it.
Status wrong_protocol(int socket, const Access& access, milliseconds at_most) {
  if (access.tls) return explain_handshake(socket, access, at_most);
  if (speaks_tls(socket, at_most)) {
    return {Code::kUnavailable, access.address +
                                    " speaks TLS: add --tls-ca FILE with the authority that signed "
                                    "its certificate, or --tls where the system trusts it"};
  }
  return {Code::kUnavailable, "something listens at " + access.address +
                                  ", but it does not speak gRPC; is that the port of 'runnel "
                                  "serve'?"};
}

}  // namespace

Status explain_silence(const Access& access, bool refused, std::chrono::duration<double> after,
                       milliseconds at_most, const std::function<bool()>& stopped) {
  const std::string& address = access.address;
  const std::optional<HostPort> place = host_port_of(address);
  if (!place) return refused ? no_server(address) : not_answering(address, after.count());
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(place->host.c_str(), place->port.c_str(), &hints, &found);
      error != 0) {
    return {Code::kUnavailable, "the host " + quote(place->host, 200) + " cannot be found (" +
                                    gai_strerror(error) + "): check the name given to --server"};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> targets(found, freeaddrinfo);
  const auto until = steady_clock::now() + at_most;
  int64_t untried = 0;
  for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    ++untried;
  }
  int error = 0;
  for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    // One address that does not answer must not take the time of the others.
    const milliseconds part = std::max(left_until(until) / untried--, milliseconds(1));
    const Probe probe(*target, part, stopped);
    error = probe.error();
    if (stopped()) return {Code::kCancelled, "interrupted while connecting"};
    if (error != 0) continue;
    return refused ? wrong_protocol(probe.socket(), access, left_until(until))
                   : not_answering(address, after.count());
  }
  return no_connection(address, error, after.count());
}

}  // namespace runnel
