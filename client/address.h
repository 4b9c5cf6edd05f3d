// The address of a server, as people write it.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"

namespace runnel {

// OK for "host:port" ("[::1]:50051" for IPv6) and for gRPC's own schemes ("unix:/run/runnel.sock",
// "dns:///name:port"). INVALID_ARGUMENT says what is wrong and shows the right form.
Status check_server_address(const std::string& address);

struct HostPort {
  std::string host, port;
};

// The host, without brackets, and the port in "host:port", "dns:///host:port", "ipv4:host:port" or
// "ipv6:[host]:port"; without a port gRPC's own, 443. None for a socket file and several addresses.
std::optional<HostPort> host_port_of(const std::string& address);

// True for an address that only this machine has, in any of these forms: "localhost", 127.0.0.0/8,
// ::1, "unix:PATH"; of several addresses, if all are. Not true for "localhost" as a name server
// knows it ("dns://10.0.0.1/localhost:50051").
bool is_loopback(const std::string& address);

}  // namespace runnel
