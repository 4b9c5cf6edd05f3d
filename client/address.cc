#include "client/address.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/text.h"

namespace runnel {
namespace {

constexpr const char* kExpected = "; expected host:port, as in 127.0.0.1:50051";

struct HostPort {
  std::string host, port;
};

// gRPC's schemes are passed on to it as they are.
bool has_grpc_scheme(std::string_view address) {
  constexpr std::string_view kSchemes[] = {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:"};
  return std::ranges::any_of(kSchemes, [&](auto scheme) { return address.starts_with(scheme); });
}

std::optional<HostPort> split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort parts = {address.substr(0, colon), address.substr(colon + 1)};
  const bool bracketed = parts.host.starts_with('[') && parts.host.ends_with(']');
  if (bracketed) parts.host = parts.host.substr(1, parts.host.size() - 2);
  if (!bracketed && parts.host.find(':') != std::string::npos) return std::nullopt;
  return parts;
}

bool is_port(const std::string& text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

// 0 when a connection was accepted, else the error's number; ETIMEDOUT after `at_most`.
int try_connect(const addrinfo& target, std::chrono::milliseconds at_most) {
  const int descriptor =
      socket(target.ai_family, target.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  int error = connect(descriptor, target.ai_addr, target.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd file = {.fd = descriptor, .events = POLLOUT, .revents = 0};
    error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (poll(&file, 1, static_cast<int>(at_most.count())) == 1) {
      getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  close(descriptor);
  return error;
}

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

}  // namespace

Status check_server_address(const std::string& address) {
  const std::string found = "the server's address is " + quote(address, 200);
  for (const std::string_view scheme : {"http://", "https://", "grpc://", "grpcs://"}) {
    if (address.starts_with(scheme)) {
      return invalid_argument(found + "; leave out " + quote(scheme) + " and give host:port");
    }
  }
  if (has_grpc_scheme(address)) return {};
  const std::optional<HostPort> parts = split(address);
  if (!parts) {
    const bool bare_ipv6 = std::ranges::count(address, ':') > 1;
    return invalid_argument(found + (bare_ipv6 ? "; write IPv6 as [::1]:50051"
                                               : ", without a port" + std::string(kExpected)));
  }
  if (parts->host.find('/') != std::string::npos || !is_port(parts->port)) {
    return invalid_argument(found + kExpected);
  }
  return {};
}

Status explain_silence(const std::string& address, bool refused,
                       std::chrono::duration<double> after, std::chrono::milliseconds at_most) {
  const std::string start_one =
      "; start one with 'runnel serve BUNDLE', or name another with --server";
  const Status nobody = {Code::kUnavailable, "no server answers at " + address + start_one};
  const std::optional<HostPort> parts = has_grpc_scheme(address) ? std::nullopt : split(address);
  if (!parts) return refused ? nobody : not_answering(address, after.count());
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found);
      error != 0) {
    return {Code::kUnavailable, "the host " + quote(parts->host, 200) + " cannot be found (" +
                                    gai_strerror(error) + "): check the name given to --server"};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> targets(found, freeaddrinfo);
  int error = 0;
  for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    error = try_connect(*target, at_most);
    if (error == 0) break;
  }
  if (error == ECONNREFUSED) return nobody;
  if (error == ETIMEDOUT) {
    return {Code::kDeadlineExceeded,
            "no connection to " + address + " within " + seconds_text(after.count()) +
                "; is the address right, and does a firewall let it pass?"};
  }
  if (error != 0) {
    return {Code::kUnavailable, "no connection to " + address + ": " +
                                    std::generic_category().message(error) + start_one};
  }
  if (!refused) return not_answering(address, after.count());
  return {Code::kUnavailable, "something listens at " + address +
                                  ", but it does not speak gRPC without TLS; is that the port of "
                                  "'runnel serve'?"};
}

}  // namespace runnel
