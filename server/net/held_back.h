// Connections from addresses that are kept out. Each is left open for a second, and nothing is read
// from it: a client that floods the server waits in the meantime. If it were refused at once, it
// would connect again thousands of times a second, which takes more time than the calls of others.
#pragma once

#include <cstddef>
#include <deque>

#include "base/clock.h"
#include "server/net/listen_socket.h"

namespace runnel {

// One thread uses it.
class HeldBack {
 public:
  static constexpr size_t kMost = 64;

  size_t size() const { return sockets_.size(); }
  // Precondition: size() < kMost.
  void add(Descriptor socket, TimePoint now);
  // Closes the connections whose second is over.
  void let_go(TimePoint now);
  // Closes the connection that has waited longest, if there is one.
  void let_go_of_one();

 private:
  struct Held {
    Descriptor socket;
    TimePoint until;
  };

  std::deque<Held> sockets_;
};

}  // namespace runnel
