#include "server/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "tests/base/test_files.h"
#include "tests/server/grpc/test_server.h"

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

// True when the other side has closed it.
bool is_closed(const Descriptor& socket) {
  const timeval soon = {.tv_sec = 5, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
  char byte = 0;
  const ssize_t got = recv(socket.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

// Keeps what is accepted until it is told to let go.
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
  // As a server does when it is done with a connection.
  void drop_one() {
    std::lock_guard lock(mutex_);
    shutdown(kept_.back().get(), SHUT_RDWR);
    kept_.pop_back();
  }
  std::string log_text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  EventLog log_{"info", false, text_};
  std::mutex mutex_;
  std::vector<Descriptor> kept_;
  Listener listener_;
};

TEST(Listener, TakesConnectionsUpToItsLimitAndAgainWhenOneHasGone) {
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

TEST(Listener, TakesSoManyOfOnePeer) {
  Keeper keeper(8, 2);
  const in_addr loopback = {.s_addr = htonl(INADDR_LOOPBACK)};
  const in_addr other = {.s_addr = htonl(INADDR_LOOPBACK + 1)};
  const Descriptor first = connect_to(keeper.address());
  const Descriptor second = connect_to(keeper.address());
  EXPECT_TRUE(keeper.holds(2));
  EXPECT_TRUE(is_closed(connect_to(keeper.address())));
  const Descriptor third = connect_to(keeper.address(), loopback, other);
  EXPECT_TRUE(keeper.holds(3));
  EXPECT_THAT(keeper.log_text(), HasSubstr("limits.connections is reached by one address"));
  keeper.drop_one();  // of the other peer
  EXPECT_TRUE(keeper.holds(2));
  EXPECT_TRUE(is_closed(connect_to(keeper.address())));
  keeper.drop_one();
  EXPECT_TRUE(keeper.holds(1));
  const Descriptor again = connect_to(keeper.address());
  EXPECT_TRUE(keeper.holds(2));
}

sockaddr_storage address_of(int family, const char* text) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  void* const bits = family == AF_INET
                         ? static_cast<void*>(&reinterpret_cast<sockaddr_in*>(&address)->sin_addr)
                         : &reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr;
  EXPECT_EQ(inet_pton(family, text, bits), 1) << text;
  return address;
}

TEST(ListenSocket, LoopbackIsThisMachineAlone) {
  for (const char* own : {"127.0.0.1", "127.255.0.9"}) {
    EXPECT_TRUE(is_loopback(address_of(AF_INET, own))) << own;
  }
  for (const char* other : {"0.0.0.0", "10.0.0.1", "192.0.2.1", "128.0.0.1", "126.0.0.1"}) {
    EXPECT_FALSE(is_loopback(address_of(AF_INET, other))) << other;
  }
  for (const char* own : {"::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback(address_of(AF_INET6, own))) << own;
  }
  for (const char* other : {"::", "fe80::1", "2001:db8::1", "::ffff:192.0.2.1", "::2"}) {
    EXPECT_FALSE(is_loopback(address_of(AF_INET6, other))) << other;
  }
  EXPECT_TRUE(listen_on("127.0.0.1:0")->on_loopback);
  EXPECT_TRUE(listen_on("localhost:0")->on_loopback);
  EXPECT_FALSE(listen_on("0.0.0.0:0")->on_loopback);
  EXPECT_FALSE(listen_on("[::]:0")->on_loopback);
}

TEST(ListenSocket, APeerIsAnIpv4AddressOrHalfAnIpv6One) {
  EXPECT_EQ(network_of(address_of(AF_INET, "192.0.2.7")), "192.0.2.7");
  EXPECT_EQ(network_of(address_of(AF_INET6, "::ffff:192.0.2.7")), "192.0.2.7");
  EXPECT_EQ(network_of(address_of(AF_INET6, "2001:db8:0:1:2:3:4:5")), "2001:db8:0:1::/64");
  EXPECT_EQ(network_of(address_of(AF_INET6, "::1")), "::/64");
  sockaddr_storage local{};
  local.ss_family = AF_UNIX;
  EXPECT_EQ(network_of(local), "unix");
}

// Every IPv4 address of this machine.
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

// As where a system passes to 127.0.0.1 what comes from elsewhere.
TEST(Listener, OnLoopbackItTakesNobodyFromAnotherAddress) {
  ListenSockets sockets = listen_on("0.0.0.0:0").value();
  sockets.on_loopback = true;
  Keeper keeper({.in_all = 8}, std::move(sockets));
  int from_here = 0;
  for (const in_addr& address : own_addresses()) {
    const bool own = (ntohl(address.s_addr) >> 24) == 127;
    const Descriptor socket = connect_to(keeper.address(), address);
    ASSERT_TRUE(socket.is_open());
    if (own) {
      EXPECT_TRUE(keeper.holds(++from_here));
    } else {
      EXPECT_TRUE(is_closed(socket));
      EXPECT_THAT(keeper.log_text(), HasSubstr("it comes from another machine"));
    }
  }
  EXPECT_GE(from_here, 1);
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

TEST(ListenOn, SaysWhyItCannot) {
  const auto taken = listen_on("127.0.0.1:0");
  ASSERT_TRUE(taken.ok());
  const Status again = listen_on(taken->address).status();
  EXPECT_EQ(again.code(), Code::kFailedPrecondition);
  EXPECT_EQ(again.message(), "cannot listen on " + taken->address +
                                 ": another process has the port; choose another one with "
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

}  // namespace
}  // namespace runnel
