#include "server/net/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <latch>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/base/test_files.h"
#include "tests/server/test_models.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

int port_in(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

constexpr in_addr kAnyAddress = {};

Descriptor connect_to(const std::string& address,
                      const in_addr& host = {.s_addr = htonl(INADDR_LOOPBACK)},
                      const in_addr& from = kAnyAddress) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr = from;
  bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at));
  at.sin_addr = host;
  at.sin_port = htons(static_cast<uint16_t>(port_in(address)));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0) return {};
  return socket;
}

// True if the other side has closed the connection.
bool is_closed(const Descriptor& socket) {
  const timeval soon = {.tv_sec = 5, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
  char byte = 0;
  const ssize_t got = recv(socket.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

// Keeps accepted connections until a test drops them.
class Keeper {
 public:
  explicit Keeper(int in_all, int per_peer = 0)
      : Keeper({.in_all = in_all, .per_peer = per_peer}, listen_on("127.0.0.1:0").value()) {}
  Keeper(ConnectionLimits limits, ListenSockets sockets)
      : listener_(std::move(sockets), std::move(limits), log_) {
    listener_.start([this](int socket) {
      std::lock_guard lock(mutex_);
      kept_.emplace_back(socket);
    });
  }
  ~Keeper() { listener_.stop(); }
  const std::string& address() const { return listener_.address(); }
  bool holds(int count) {
    return eventually([&] { return listener_.connections() == count; });
  }
  // Closes a connection as a server does.
  void drop_one() {
    std::lock_guard lock(mutex_);
    shutdown(kept_.back().get(), SHUT_RDWR);
    kept_.pop_back();
  }
  // Stops the listener, because its thread writes the log.
  std::string log_text() {
    listener_.stop();
    return text_.str();
  }

 private:
  std::ostringstream text_;
  EventLog log_{"info", false, text_};
  std::mutex mutex_;
  std::vector<Descriptor> kept_;
  Listener listener_;
};

TEST(Listener, AcceptsConnectionsUpToItsLimitAndAgainAfterOneCloses) {
  Keeper keeper(2);
  const Descriptor first = connect_to(keeper.address());
  const Descriptor second = connect_to(keeper.address());
  EXPECT_TRUE(keeper.holds(2));
  EXPECT_TRUE(is_closed(connect_to(keeper.address())));
  EXPECT_TRUE(is_closed(connect_to(keeper.address())));
  keeper.drop_one();
  EXPECT_TRUE(keeper.holds(1));
  const Descriptor third = connect_to(keeper.address());
  EXPECT_TRUE(keeper.holds(2));
  EXPECT_THAT(keeper.log_text(), HasSubstr("limits.connections is reached"));
}

TEST(Listener, LimitsTheConnectionsOfOnePeer) {
  Keeper keeper(8, 2);
  const in_addr loopback = {.s_addr = htonl(INADDR_LOOPBACK)};
  const in_addr other = {.s_addr = htonl(INADDR_LOOPBACK + 1)};
  const Descriptor first = connect_to(keeper.address());
  const Descriptor second = connect_to(keeper.address());
  EXPECT_TRUE(keeper.holds(2));
  EXPECT_TRUE(is_closed(connect_to(keeper.address())));
  const Descriptor third = connect_to(keeper.address(), loopback, other);
  EXPECT_TRUE(keeper.holds(3));
  keeper.drop_one();  // closes the other peer's connection
  EXPECT_TRUE(keeper.holds(2));
  EXPECT_TRUE(is_closed(connect_to(keeper.address())));
  keeper.drop_one();
  EXPECT_TRUE(keeper.holds(1));
  const Descriptor again = connect_to(keeper.address());
  EXPECT_TRUE(keeper.holds(2));
  EXPECT_THAT(keeper.log_text(), HasSubstr("limits.connections is reached by one address"));
}

TEST(Listener, AConnectionThatHasEndedMakesRoomAtOnce) {
  std::ostringstream text;
  const EventLog log("info", false, text);
  Listener listener(listen_on("127.0.0.1:0").value(), {.in_all = 2}, log);
  std::latch all_connected(1);
  int taken = 0;
  listener.start([&](int socket) {
    all_connected.wait();  // from then on, the listener finds a next connection at once
    const Descriptor ended(socket);
    shutdown(socket, SHUT_RDWR);
    ++taken;
  });
  std::vector<Descriptor> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(connect_to(listener.address()));
  all_connected.count_down();
  for (const Descriptor& client : clients) EXPECT_TRUE(is_closed(client));
  listener.stop();
  EXPECT_EQ(taken, 10);
  EXPECT_EQ(listener.refusals(), 0);
}

// All IPv4 addresses of this machine.
std::vector<in_addr> own_addresses() {
  ifaddrs* first = nullptr;
  EXPECT_EQ(getifaddrs(&first), 0);
  std::vector<in_addr> addresses;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    addresses.push_back(reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr);
  }
  freeifaddrs(first);
  return addresses;
}

// Some systems forward outside connections to 127.0.0.1.
TEST(Listener, OnLoopbackRefusesOtherAddresses) {
  ListenSockets sockets = listen_on("0.0.0.0:0").value();
  sockets.on_loopback = true;
  Keeper keeper({.in_all = 8}, std::move(sockets));
  int from_here = 0, from_elsewhere = 0;
  for (const in_addr& address : own_addresses()) {
    const bool own = (ntohl(address.s_addr) >> 24) == 127;
    const Descriptor socket = connect_to(keeper.address(), address);
    ASSERT_TRUE(socket.is_open());
    if (own) {
      EXPECT_TRUE(keeper.holds(++from_here));
    } else {
      EXPECT_TRUE(is_closed(socket));
      ++from_elsewhere;
    }
  }
  EXPECT_GE(from_here, 1);
  const std::string log = keeper.log_text();
  EXPECT_EQ(log.find("it comes from another machine") != std::string::npos, from_elsewhere > 0);
}

TEST(Listener, ManyComeAndGo) {
  Keeper keeper(8);
  for (int round = 0; round < 200; ++round) {
    const Descriptor socket = connect_to(keeper.address());
    ASSERT_TRUE(keeper.holds(1)) << round;
    keeper.drop_one();
    ASSERT_TRUE(keeper.holds(0)) << round;
  }
}

TEST(ListenOn, NamesTheReasonOfAFailure) {
  const auto taken = listen_on("127.0.0.1:0");
  ASSERT_TRUE(taken.ok());
  const Status again = listen_on(taken->address).status();
  EXPECT_EQ(again.code(), Code::kFailedPrecondition);
  EXPECT_EQ(again.message(), "cannot listen on " + taken->address +
                                 ": the address is already in use; choose another one with "
                                 "--address");
  EXPECT_THAT(listen_on("192.0.2.1:0").status().message(), HasSubstr("not one of this machine's"));
  EXPECT_THAT(listen_on("no.such.host.invalid:0").status().message(),
              HasSubstr("'no.such.host.invalid'"));
  EXPECT_THAT(listen_on("unix:" + std::string(200, 'x')).status().message(),
              HasSubstr("a path has at most"));
}

TEST(ListenOn, TakesEveryAddressOfAName) {
  const auto sockets = listen_on("localhost:0");
  ASSERT_TRUE(sockets.ok()) << sockets.status().message();
  EXPECT_GE(sockets->sockets.size(), 1U);
  EXPECT_GT(port_in(sockets->address), 0);
}

TEST(ListenOn, ReplacesASocketFileThatNobodyListensOn) {
  const TestFolder folder;
  const std::string address = "unix:" + folder.path("socket");
  {
    ASSERT_TRUE(listen_on(address).ok());
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path("socket")));
  const auto second = listen_on(address);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_FALSE(listen_on(address).ok());
}

// Has the system refuse sockets of IPv6 to the calling thread, as on a machine without IPv6. False
// if the system cannot do this.
bool forbid_ipv6() {
  std::array<sock_filter, 6> steps = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter = {.len = steps.size(), .filter = steps.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(ListenOn, AMachineWithoutIpv6ListensOnIpv4) {
  bool forbidden = false;
  std::thread([&] {
    forbidden = forbid_ipv6();
    if (!forbidden) return;
    EXPECT_THAT(listen_on("[::1]:0").status().message(), HasSubstr("Address family not supported"));
    for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
      const auto sockets = listen_on(address);
      ASSERT_TRUE(sockets.ok()) << sockets.status().message();
      EXPECT_EQ(sockets->sockets.size(), 1U);
      EXPECT_TRUE(connect_to(sockets->address).is_open());
    }
  }).join();
  if (!forbidden) GTEST_SKIP() << "this system has no filters of system calls";
}

TEST(ListenOn, DoesNotWaitForAProcessThatAcceptsNoConnections) {
  const TestFolder folder;
  const std::string path = folder.path("socket");
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  const auto* const address = reinterpret_cast<const sockaddr*>(&at);
  const Descriptor busy(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(busy.get(), address, sizeof(at)), 0);
  ASSERT_EQ(listen(busy.get(), 0), 0);
  std::vector<Descriptor> waiting;
  do {
    waiting.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back().get(), address, sizeof(at)) == 0);
  ASSERT_EQ(errno, EAGAIN);
  EXPECT_THAT(listen_on("unix:" + path).status().message(), HasSubstr("already in use"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

// A listener whose process uses more memory than its connections explain. While `flooded`, the
// excess grows.
class FloodedListener {
 public:
  explicit FloodedListener(const Clock& clock = real_clock())
      : listener_(listen_on("127.0.0.1:0").value(), {.in_all = 16}, log_, clock) {
    listener_.start(
        [this](int socket) {
          std::lock_guard lock(mutex_);
          kept_.emplace_back(socket);
        },
        [this](int) { return Flood{.excess = flooded ? ++excess_ : 0, .of = "bytes of a test"}; });
  }
  ~FloodedListener() { listener_.stop(); }
  const Listener& listener() const { return listener_; }
  // Reads everything that has arrived, as a server does. Without reads, the system takes no flood.
  void read_all() {
    std::lock_guard lock(mutex_);
    std::array<char, 65536> bytes;
    for (const Descriptor& each : kept_) {
      while (recv(each.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
      }
    }
  }
  // Stops the listener, because its thread writes the log.
  std::string log_text() {
    listener_.stop();
    return text_.str();
  }

  std::atomic<bool> flooded{false};

 private:
  std::ostringstream text_;
  EventLog log_{"info", false, text_};
  std::mutex mutex_;
  std::vector<Descriptor> kept_;
  int64_t excess_ = 0;
  Listener listener_;
};

constexpr in_addr kFlooder = {.s_addr = 0x0200007f};  // 127.0.0.2

TEST(Listener, CutsOffTheBusiestAddressDuringAFloodAndKeepsItOut) {
  FloodedListener port;
  const std::string& address = port.listener().address();
  const in_addr loopback = {.s_addr = htonl(INADDR_LOOPBACK)};
  const Descriptor quiet = connect_to(address);
  const Descriptor flooding = connect_to(address, loopback, kFlooder);
  ASSERT_TRUE(eventually([&] { return port.listener().connections() == 2; }));
  const std::string much(65536, 'x');
  send(flooding.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  EXPECT_EQ(port.listener().floods(), 0);
  port.flooded = true;
  EXPECT_TRUE(eventually([&] {
    send(quiet.get(), "x", 1, MSG_NOSIGNAL);
    send(flooding.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    port.read_all();
    return port.listener().floods() == 1;
  }));
  port.flooded = false;
  EXPECT_TRUE(is_closed(flooding));
  EXPECT_TRUE(eventually([&] { return port.listener().connections() == 1; }));
  EXPECT_TRUE(is_closed(connect_to(address, loopback, kFlooder)));
  const Descriptor other = connect_to(address);
  EXPECT_TRUE(eventually([&] { return port.listener().connections() == 2; }));
  EXPECT_THAT(port.log_text(), HasSubstr("peer=127.0.0.2"));
  EXPECT_THAT(port.log_text(), HasSubstr("bytes of a test"));
}

// Whether the other side has closed the connection by now.
bool is_closed_by_now(const Descriptor& socket) {
  char byte = 0;
  return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN;
}

TEST(Listener, HoldsConnectionsOfAKeptOutAddressBackForASecond) {
  Clock clock(TimePoint(std::chrono::hours(1)));
  FloodedListener port(clock);
  const Listener& listener = port.listener();
  const in_addr loopback = {.s_addr = htonl(INADDR_LOOPBACK)};
  const auto connect_flooder = [&] { return connect_to(listener.address(), loopback, kFlooder); };
  const Descriptor quiet = connect_to(listener.address());
  const Descriptor flooding = connect_flooder();
  ASSERT_TRUE(eventually([&] { return listener.connections() == 2; }));
  const std::string much(65536, 'x');
  port.flooded = true;
  ASSERT_TRUE(eventually([&] {
    send(flooding.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    port.read_all();
    clock.advance(std::chrono::milliseconds(10));
    return listener.floods() == 1;
  }));
  port.flooded = false;
  ASSERT_TRUE(eventually([&] { return listener.connections() == 1; }));
  std::vector<Descriptor> held;  // as many as `in_all` leaves
  for (int i = 0; i < 15; ++i) held.push_back(connect_flooder());
  EXPECT_TRUE(is_closed(connect_flooder())) << "there is no room for it";
  for (const Descriptor& each : held) EXPECT_FALSE(is_closed_by_now(each));
  const Descriptor other = connect_to(listener.address());
  EXPECT_TRUE(eventually([&] { return listener.connections() == 2; })) << "it has the room of one";
  EXPECT_TRUE(is_closed(held.front()));
  EXPECT_FALSE(is_closed_by_now(held[1]));
  clock.advance(std::chrono::seconds(1));
  for (const Descriptor& each : held) EXPECT_TRUE(is_closed(each));
  EXPECT_EQ(listener.refusals(), 16);
  const Descriptor last = connect_flooder();
  EXPECT_TRUE(eventually([&] { return listener.refusals() == 17; }));
  EXPECT_FALSE(is_closed_by_now(last));
  port.log_text();  // stops the listener
  EXPECT_TRUE(is_closed(last));
}

TEST(Listener, CutsOffNobodyWhileTheExcessDoesNotGrow) {
  std::ostringstream text;
  const EventLog log{"info", false, text};
  std::vector<Descriptor> kept;
  std::atomic<int> looks{0};
  Listener listener(listen_on("127.0.0.1:0").value(), {.in_all = 16}, log);
  listener.start([&](int socket) { kept.emplace_back(socket); },
                 [&](int) {
                   ++looks;
                   return Flood{.excess = 1 << 20, .of = "bytes that are on their way out"};
                 });
  const Descriptor sending = connect_to(listener.address());
  EXPECT_TRUE(eventually([&] { return looks > 1; }));
  const std::string much(65536, 'x');
  EXPECT_TRUE(eventually([&] {
    send(sending.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return looks > 10;
  }));
  listener.stop();
  EXPECT_EQ(listener.floods(), 0);
}

}  // namespace
}  // namespace runnel
