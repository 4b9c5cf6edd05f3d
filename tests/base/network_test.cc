#include "base/network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace runnel {
namespace {

sockaddr_storage address_of(int family, const char* text) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  void* const bits = family == AF_INET
                         ? static_cast<void*>(&reinterpret_cast<sockaddr_in*>(&address)->sin_addr)
                         : &reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr;
  EXPECT_EQ(inet_pton(family, text, bits), 1) << text;
  return address;
}

TEST(Network, LoopbackIsOnlyThisMachine) {
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
}

TEST(Network, APeerIsAnIpv4AddressOrTheFirstHalfOfAnIpv6Address) {
  EXPECT_EQ(network_of(address_of(AF_INET, "192.0.2.7")), "192.0.2.7");
  EXPECT_EQ(network_of(address_of(AF_INET6, "::ffff:192.0.2.7")), "192.0.2.7");
  EXPECT_EQ(network_of(address_of(AF_INET6, "2001:db8:0:1:2:3:4:5")), "2001:db8:0:1::/64");
  EXPECT_EQ(network_of(address_of(AF_INET6, "::1")), "::/64");
  sockaddr_storage local{};
  local.ss_family = AF_UNIX;
  EXPECT_EQ(network_of(local), "unix");
}

}  // namespace
}  // namespace runnel
