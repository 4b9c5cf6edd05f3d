// Parses and checks server addresses.
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

// Returns the host, without brackets, and the port of "host:port", "dns:///host:port",
// "ipv4:host:port" or "ipv6:[host]:port". If the address has no port, the port is gRPC's default,
// 443. Returns none for a socket file and for a list of addresses.
std::optional<HostPort> host_port_of(const std::string& address);

// True for an address that only this machine can reach, in any of these forms: "localhost",
// 127.0.0.0/8, ::1, "unix:PATH". For a list of addresses: true if all of them are such addresses.
// False if a name server is asked for "localhost" ("dns://10.0.0.1/localhost:50051").
bool is_loopback(const std::string& address);

}  // namespace runnel
