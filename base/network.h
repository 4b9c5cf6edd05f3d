// Network addresses of peers.
#pragma once

#include <sys/socket.h>

#include <string>

namespace runnel {

// True for 127.0.0.0/8, ::1 and unix sockets.
bool is_loopback(const sockaddr_storage& address);

// The network under which a peer is counted: "192.0.2.7" for IPv4, including IPv4-mapped IPv6; the
// first 64 bits for IPv6, "2001:db8:0:1::/64"; "unix" for any other family.
std::string network_of(const sockaddr_storage& address);

}  // namespace runnel
