// Accepts connections up to a limit and closes connections that flood the process. gRPC does
// neither.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"
#include "server/host/event_log.h"
#include "server/host/mishaps.h"
#include "server/net/connection_traffic.h"
#include "server/net/held_back.h"
#include "server/net/kept_out.h"
#include "server/net/listen_socket.h"

namespace runnel {

// Connections that may be open at once.
struct ConnectionLimits {
  int in_all = 0;
  int per_peer = 0;                         // from one network_of(); 0: no separate limit
  std::string name = "limits.connections";  // the name of the limit in the log
};

struct Flood {
  int64_t excess = 0;   // in bytes; 0 or less: there is no flood
  std::string of = {};  // for the log: the name of the memory that is in excess
};

class Listener {
 public:
  // Takes over a connected, non-blocking socket; called on the listener's thread.
  using Take = std::function<void(int socket)>;
  // Measures the memory of the process beyond the memory that `connections` open connections can
  // account for. Called on the listener's thread every 10 ms while a connection is open.
  using MeasureFlood = std::function<Flood(int connections)>;

  // Closes a connection beyond `limits` at once, and logs a warning at most once a second. If all
  // sockets are on loopback, it does the same with connections from other machines, which the
  // system may be configured to forward. `log` and `clock` must outlive the listener.
  Listener(ListenSockets sockets, ConnectionLimits limits, const EventLog& log,
           const Clock& clock = real_clock());
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  // stop().
  ~Listener();

  // Starts to accept connections. While an excess grows, the connections of the addresses that send
  // most are cut off, and these addresses are kept out for some time (KeptOut, HeldBack).
  void start(Take take, MeasureFlood measure_flood = nullptr);
  // Stops accepting, and closes the listening sockets. Open connections stay. Calls after the first
  // do nothing.
  void stop();

  const std::string& address() const { return address_; }
  // The number of open connections that have been taken over.
  int connections() const { return connections_.load(); }
  // How many connections have been refused: closed on arrival, or held back (HeldBack).
  int64_t refusals() const { return refusals_.value(); }
  // How many connections have been cut off because of a flood.
  int64_t floods() const { return floods_.value(); }

 private:
  using Events = std::array<epoll_event, 64>;

  void run();
  bool watch(int fd, uint32_t events);
  int wait(int milliseconds, Events& events);
  void accept_from(int listening);
  const char* limit_reached(const std::string& peer) const;
  void admit(Descriptor socket, const std::string& peer);
  void forget(int fd);
  void refuse(Descriptor socket, const std::string& why);
  void hold_back(Descriptor socket);
  bool is_full() const { return std::ssize(open_) + std::ssize(held_back_) >= limits_.in_all; }
  void warn(const std::string& why);
  void look_for_flood();
  Received received() const;
  void cut_off_busiest();

  const std::string address_;
  const ConnectionLimits limits_;
  const bool loopback_;  // accepts only connections from this machine
  const EventLog& log_;
  const Clock& clock_;
  Mishaps mishaps_{log_, clock_};
  Take take_;
  MeasureFlood measure_flood_;
  std::map<int, Descriptor> listening_;
  struct Open {
    Descriptor descriptor;
    std::string peer;
  };
  // A duplicate descriptor of each open connection. With it the listener sees when the owner of the
  // original has shut the connection down.
  std::map<int, Open> open_;
  std::map<std::string, int> peers_;  // the number of open connections of each peer
  Descriptor epoll_, stop_;
  std::atomic<int> connections_{0};
  Counter refusals_, floods_;
  KeptOut kept_out_;
  HeldBack held_back_;
  TimePoint looked_{}, counted_{};  // the last look for a flood, the last count of bytes
  Flood flood_;                     // at the last look
  Received received_;               // at the last count
  int64_t refused_ = 0;             // since the last warning
  TimePoint warned_{};
  std::thread thread_;
};

}  // namespace runnel
