#include "server/process/notify_ready.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/text.h"
#include "server/net/listen_socket.h"

namespace runnel {

Status notify_ready() {
  const char* const given = std::getenv("NOTIFY_SOCKET");
  if (given == nullptr || *given == '\0') return {};
  const std::string_view name = given;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path)) {
    return invalid_argument("NOTIFY_SOCKET: " + quote(given) + " is too long for a unix socket");
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  constexpr std::string_view kReady = "READY=1";
  const bool is_sent =
      socket.is_open() &&
      ::sendto(socket.get(), kReady.data(), kReady.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), length) == std::ssize(kReady);
  if (is_sent) return {};
  const int error = errno;
  return {Code::kUnavailable,
          "NOTIFY_SOCKET: " + quote(given) +
              " could not be told that the server is ready: " + std::strerror(error)};
}

}  // namespace runnel
