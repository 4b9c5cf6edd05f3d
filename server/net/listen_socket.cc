#include "server/net/listen_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/network.h"

namespace runnel {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr int kPortTries = 64;

Status cannot_listen(const std::string& address, const std::string& why) {
  return {Code::kFailedPrecondition, "cannot listen on " + address + ": " + why};
}

std::string reason(int error) {
  if (error == EADDRINUSE) return "the address is already in use";
  if (error == EADDRNOTAVAIL) return "the address is not one of this machine's";
  if (error == EACCES) return "this user may not (ports below 1024 need a privilege)";
  return std::strerror(error);
}

// Returns a socket, or none and the reason in `error`.
Descriptor listen_at(const sockaddr* at, socklen_t size, int& error) {
  Descriptor socket(::socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) {  // the calls below would replace errno
    error = errno;
    return {};
  }
  const int on = 1;
  const int off = 0;
  if (at->sa_family != AF_UNIX) {
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  if (at->sa_family == AF_INET6) {  // [::] accepts IPv4, too
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(socket.get(), at, size) == 0 && listen(socket.get(), SOMAXCONN) == 0) return socket;
  error = errno;
  return {};
}

// Removes the socket file of a process that has ended. A file on which somebody listens stays. Does
// not wait for a process that accepts no connections.
void remove_stale(const sockaddr_un& at) {
  struct stat info{};
  if (lstat(at.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool answers =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0;
  if (!answers && errno == ECONNREFUSED) unlink(at.sun_path);
}

Result<ListenSockets> listen_unix(const std::string& address) {
  const std::string path = address.substr(kUnixPrefix.size());
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (path.size() >= sizeof(at.sun_path)) {
    return cannot_listen(
        address, "a path has at most " + std::to_string(sizeof(at.sun_path) - 1) + " bytes");
  }
  path.copy(at.sun_path, path.size());
  remove_stale(at);
  int error = 0;
  Descriptor socket = listen_at(reinterpret_cast<const sockaddr*>(&at), sizeof(at), error);
  if (!socket.is_open()) return cannot_listen(address, reason(error));
  ListenSockets all;
  all.address = address;
  all.sockets.push_back(std::move(socket));
  return all;
}

in_port_t& port_of(sockaddr* at) {
  return at->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(at)->sin6_port
                                   : reinterpret_cast<sockaddr_in*>(at)->sin_port;
}

sockaddr_storage bound_address(const Descriptor& socket) {
  sockaddr_storage at{};
  socklen_t size = sizeof(at);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size);
  return at;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

bool same_address(const addrinfo& a, const addrinfo& b) {
  return a.ai_addrlen == b.ai_addrlen && std::memcmp(a.ai_addr, b.ai_addr, a.ai_addrlen) == 0;
}

// Removes each address that is equal to an earlier one: a hosts file may have a line twice.
void remove_repeated(addrinfo* first) {
  for (; first != nullptr; first = first->ai_next) {
    for (addrinfo* last = first; last->ai_next != nullptr;) {
      addrinfo* const next = last->ai_next;
      if (!same_address(*first, *next)) {
        last = next;
        continue;
      }
      last->ai_next = std::exchange(next->ai_next, nullptr);
      freeaddrinfo(next);
    }
  }
}

Result<Addresses> resolve(const std::string& host, const std::string& port,
                          const std::string& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return cannot_listen(address, "'" + host + "': " + gai_strerror(error));
  remove_repeated(found);
  return Addresses(found, &freeaddrinfo);
}

// Adds a socket for each address to `all`. An address or family that this machine does not have is
// left out, and sets `error`. Any other error returns false.
bool listen_at_all(addrinfo& first, int& port, int& error, ListenSockets& all) {
  for (addrinfo* each = &first; each != nullptr; each = each->ai_next) {
    if (port != 0) port_of(each->ai_addr) = htons(static_cast<uint16_t>(port));
    Descriptor socket = listen_at(each->ai_addr, each->ai_addrlen, error);
    if (!socket.is_open()) {
      if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) return false;
      continue;
    }
    sockaddr_storage at = bound_address(socket);
    port = ntohs(port_of(reinterpret_cast<sockaddr*>(&at)));
    all.on_loopback = all.on_loopback && is_loopback(at);
    all.sockets.push_back(std::move(socket));
  }
  return true;
}

// As listen_at_all(). If the port is 0, finds one that is free at all addresses: the system chooses
// one that is free at the first.
bool listen_at_one_port(addrinfo& first, int& port, int& error, ListenSockets& all) {
  if (port_of(first.ai_addr) != 0) return listen_at_all(first, port, error, all);
  std::vector<ListenSockets> refused;  // stay open, so that the system chooses other ports
  while (refused.size() < kPortTries) {
    if (listen_at_all(first, port, error, all)) return true;
    if (error != EADDRINUSE || all.sockets.empty()) return false;
    refused.push_back(std::exchange(all, {}));
    for (addrinfo* each = &first; each != nullptr; each = each->ai_next) port_of(each->ai_addr) = 0;
    port = 0;
  }
  return false;
}

Result<ListenSockets> listen_at_address(const std::string& address) {
  if (address.starts_with(kUnixPrefix)) return listen_unix(address);
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return cannot_listen(address, "there is no port");
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  // Either wildcard means every address of the machine: through IPv6 if the machine has it, which
  // also accepts IPv4.
  const bool everywhere = host == "0.0.0.0" || host == "::";
  int port = 0;  // of the first socket, used for all
  int error = 0;
  ListenSockets all;
  for (const std::string& each :
       everywhere ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector<std::string>{host}) {
    const Result<Addresses> found = resolve(each, address.substr(colon + 1), address);
    if (!found.ok() && !everywhere) return found.status();
    if (!found.ok()) continue;
    if (!listen_at_one_port(**found, port, error, all)) {
      return cannot_listen(address, reason(error));
    }
    if (!all.sockets.empty()) break;
  }
  if (all.sockets.empty()) return cannot_listen(address, reason(error));
  all.address = address.substr(0, colon + 1) + std::to_string(port);
  return all;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Result<ListenSockets> listen_on(const std::string& address, const char* flag) {
  Result<ListenSockets> sockets = listen_at_address(address);
  if (sockets.ok()) return sockets;
  return Status(sockets.status().code(),
                sockets.status().message() + "; choose another one with " + flag);
}

}  // namespace runnel
