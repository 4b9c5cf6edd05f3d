#include "base/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

namespace runnel {

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_UNIX) return true;
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(ipv4.sin_addr.s_addr) >> 24 == 127;
  }
  if (address.ss_family != AF_INET6) return false;
  const in6_addr& bits = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&bits) || (IN6_IS_ADDR_V4MAPPED(&bits) && bits.s6_addr[12] == 127);
}

std::string network_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const in_addr bits = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    return inet_ntop(AF_INET, &bits, text.data(), text.size());
  }
  if (address.ss_family != AF_INET6) return "unix";
  in6_addr bits = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&bits)) {
    return inet_ntop(AF_INET, bits.s6_addr + 12, text.data(), text.size());
  }
  std::memset(bits.s6_addr + 8, 0, 8);
  return inet_ntop(AF_INET6, &bits, text.data(), text.size()) + std::string("/64");
}

}  // namespace runnel
