#include "server/net/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/network.h"

namespace runnel {
namespace {

constexpr int kAcceptsPerTurn = 64;  // so that stop() is noticed in between
constexpr auto kBetweenWarnings = std::chrono::seconds(1);
constexpr int kBetweenLooksMs = 10;  // between checks for a flood
constexpr auto kBetweenCounts = std::chrono::seconds(1);
constexpr auto kWithoutDescriptors = std::chrono::milliseconds(50);
constexpr int kUnacknowledgedMs = 20000;  // data unacknowledged for longer: the peer is gone
constexpr const char* kFromElsewhere =
    "it comes from another machine, and the server listens on loopback alone";
constexpr const char* kNoMoreFiles =
    "the system gives no more open files; raise 'ulimit -n', or lower limits.connections";

// From now on, closing the connection sends a reset, so that nothing of it remains.
void close_with_reset(const Descriptor& socket) {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

}  // namespace

Listener::Listener(ListenSockets sockets, ConnectionLimits limits, const EventLog& log,
                   const Clock& clock)
    : address_(std::move(sockets.address)),
      limits_(std::move(limits)),
      loopback_(sockets.on_loopback),
      log_(log),
      clock_(clock),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(epoll_.is_open() && stop_.is_open(), "the system gives epoll and an event");
  for (Descriptor& socket : sockets.sockets) {
    const int fd = socket.get();
    listening_.emplace(fd, std::move(socket));
  }
}

Listener::~Listener() { stop(); }

void Listener::start(Take take, MeasureFlood measure_flood) {
  take_ = std::move(take);
  measure_flood_ = std::move(measure_flood);
  bool watches = watch(stop_.get(), EPOLLIN);
  for (const auto& [fd, socket] : listening_) watches = watch(fd, EPOLLIN) && watches;
  check(watches, "listening sockets can be watched");
  thread_ = std::thread([this] { run(); });
}

void Listener::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    check(write(stop_.get(), &one, sizeof(one)) == sizeof(one), "an event can be raised");
    thread_.join();
  }
  listening_.clear();
  held_back_ = {};
}

bool Listener::watch(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Listener::run() {
  Events events{};
  for (;;) {
    const bool looks = measure_flood_ != nullptr && !open_.empty();
    const int count = wait(looks || held_back_.size() > 0 ? kBetweenLooksMs : -1, events);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_.get()) return;
      if (listening_.contains(fd)) mishaps_.contain([&] { accept_from(fd); });
    }
    if (looks) mishaps_.contain([&] { look_for_flood(); });
    held_back_.let_go(clock_.now());
  }
}

// Waits for events, and forgets the connections that have ended. Returns the number of events.
int Listener::wait(int milliseconds, Events& events) {
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), milliseconds);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == stop_.get() || listening_.contains(fd)) continue;
    // Its file is also open elsewhere. Without this, epoll would continue to report it.
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    forget(fd);
  }
  return count;
}

// Notes once a second how many bytes each connection has received, so that a check for a flood sees
// which addresses have sent most since then. (The 10 ms since the last check are too short: in this
// time a single attacker may have sent, while the others wait until the library reads.) If an
// excess no longer grows, its calls are already ending, and closing more connections would not
// help.
void Listener::look_for_flood() {
  const TimePoint now = clock_.now();
  if (now - looked_ < std::chrono::milliseconds(kBetweenLooksMs)) return;
  looked_ = now;
  const Flood last = std::exchange(flood_, measure_flood_(static_cast<int>(std::ssize(open_))));
  if (flood_.excess > 0 && flood_.excess > last.excess) return cut_off_busiest();
  if (flood_.excess > 0 || now - counted_ < kBetweenCounts) return;
  received_ = received();
  counted_ = now;
}

Received Listener::received() const {
  Received all;
  for (const auto& [fd, open] : open_) {
    all.emplace(fd, Traffic{.peer = open.peer, .bytes = bytes_received(fd)});
  }
  return all;
}

// epoll then reports the end of these connections, which leads to forget().
void Listener::cut_off_busiest() {
  for (const std::string& peer : busiest(received_, received())) {
    kept_out_.add(peer, looked_);
    int64_t closed = 0;
    for (const auto& [fd, open] : open_) {
      if (open.peer != peer) continue;
      cut_off(fd);
      ++closed;
    }
    floods_.add(closed);
    log_.warn(
        "flood",
        {{"peer", peer}, {"closed", closed}, {"open", std::ssize(open_)}, {"message", flood_.of}});
  }
  received_ = received();
  counted_ = looked_;
}

void Listener::accept_from(int listening) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    Descriptor socket(accept4(listening, reinterpret_cast<sockaddr*>(&peer), &size,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      if (loopback_ && !is_loopback(peer)) {
        refuse(std::move(socket), kFromElsewhere);
      } else {
        admit(std::move(socket), network_of(peer));
      }
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      warn(kNoMoreFiles);
      std::this_thread::sleep_for(kWithoutDescriptors);
      return;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    // Otherwise the connection was closed before it was accepted: tries the next one.
  }
}

// Which limit leaves no room for a connection of `peer`; null: none.
const char* Listener::limit_reached(const std::string& peer) const {
  if (std::ssize(open_) >= limits_.in_all) return " is reached";
  const auto others = peers_.find(peer);
  const bool is_reached =
      limits_.per_peer > 0 && others != peers_.end() && others->second >= limits_.per_peer;
  return is_reached ? " is reached by one address" : nullptr;
}

void Listener::admit(Descriptor socket, const std::string& peer) {
  // Connections that have ended in the meantime make room.
  for (Events events; limit_reached(peer) != nullptr;) {
    if (wait(0, events) < std::ssize(events)) break;
  }
  if (const char* reached = limit_reached(peer); reached != nullptr) {
    return refuse(std::move(socket), limits_.name + reached);
  }
  if (kept_out_.has(peer, clock_.now())) return hold_back(std::move(socket));
  if (is_full()) held_back_.let_go_of_one();
  Descriptor second(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  const int fd = second.get();
  // EPOLLHUP and EPOLLERR are always reported.
  if (!second.is_open() || !watch(fd, 0)) return refuse(std::move(socket), kNoMoreFiles);
  const int on = 1;
  // Both fail for unix: sockets, which need neither.
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs,
             sizeof(kUnacknowledgedMs));
  open_.emplace(fd, Open{std::move(second), peer});
  try {
    ++peers_[peer];
    take_(socket.release());
  } catch (const std::bad_alloc&) {
    forget(fd);
    throw;
  }
  connections_.store(static_cast<int>(open_.size()));
}

void Listener::forget(int fd) {
  const auto gone = open_.find(fd);
  const auto peer = peers_.find(gone->second.peer);
  if (peer != peers_.end() && --peer->second <= 0) peers_.erase(peer);
  open_.erase(gone);
  connections_.store(static_cast<int>(open_.size()));
}

void Listener::refuse(Descriptor socket, const std::string& why) {
  close_with_reset(socket);
  ++refused_;
  refusals_.add();
  warn(why);
}

// Open and held connections together may be at most limits_.in_all. If there is no room, a
// connection is closed at once.
void Listener::hold_back(Descriptor socket) {
  close_with_reset(socket);
  const bool has_room = held_back_.size() < HeldBack::kMost && !is_full();
  if (has_room) held_back_.add(std::move(socket), clock_.now());
  ++refused_;
  refusals_.add();
  warn("the address is kept out after a flood");
}

void Listener::warn(const std::string& why) {
  const TimePoint now = clock_.now();
  if (now - warned_ < kBetweenWarnings) return;
  warned_ = now;
  log_.warn("connections", {{"refused", refused_}, {"open", std::ssize(open_)}, {"message", why}});
  refused_ = 0;
}

}  // namespace runnel
