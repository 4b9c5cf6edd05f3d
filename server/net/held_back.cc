#include "server/net/held_back.h"

#include <sys/socket.h>

#include <utility>

#include "base/check.h"

namespace runnel {
namespace {

constexpr Duration kHeld = std::chrono::seconds(1);

}  // namespace

void HeldBack::add(Descriptor socket, TimePoint now) {
  check(sockets_.size() < kMost, "there is room for the connection");
  const int least = 1;  // the system makes it the least that it allows
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
  sockets_.push_back({std::move(socket), now + kHeld});
}

void HeldBack::let_go(TimePoint now) {
  while (!sockets_.empty() && now >= sockets_.front().until) sockets_.pop_front();
}

void HeldBack::let_go_of_one() {
  if (!sockets_.empty()) sockets_.pop_front();
}

}  // namespace runnel
