// Listening sockets from an address as operators write it.
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
  // Gives the descriptor away.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct ListenSockets {
  std::vector<Descriptor> sockets;  // non-blocking
  std::string address;              // as asked for, with the port that the system chose for 0
  bool on_loopback = true;          // nobody beyond this machine reaches any of them
};

// Listens on "host:port", "[::1]:port" (every address that the name has, all on one port) or
// "unix:PATH" (a socket file that nobody listens on is replaced). FAILED_PRECONDITION says why it
// cannot be had and what to do; `flag` is the one that chooses another.
Result<ListenSockets> listen_on(const std::string& address, const char* flag = "--address");

}  // namespace runnel
