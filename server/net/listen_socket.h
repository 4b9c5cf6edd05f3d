// Opens listening sockets for an address from the configuration.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace runnel {

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Returns the descriptor, which the caller must then close.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct ListenSockets {
  std::vector<Descriptor> sockets;  // non-blocking
  std::string address;              // as given, but with the port that the system chose for 0
  bool on_loopback = true;          // no other machine can reach any of them
};

// Listens on "host:port" or "[::1]:port" (on every address of the name, all with the same port), or
// on "unix:PATH" (replaces a socket file that nobody listens on). FAILED_PRECONDITION says why it
// cannot listen, and what to do. `flag` is the flag that sets the address.
Result<ListenSockets> listen_on(const std::string& address, const char* flag = "--address");

}  // namespace runnel
