// The address of a server, as people write it.
#pragma once

#include <string>

#include "base/status.h"

namespace runnel {

// OK for "host:port" ("[::1]:50051" for IPv6) and for gRPC's own schemes ("unix:/run/runnel.sock",
// "dns:///name:port"). INVALID_ARGUMENT says what is wrong and shows the right form.
Status check_server_address(const std::string& address);

// The host in "host:port", without brackets; "" where the address has a scheme of gRPC's.
std::string host_of(const std::string& address);

// True for an address that only this machine has: "localhost", 127.0.0.0/8, ::1, "unix:PATH".
bool is_loopback(const std::string& address);

}  // namespace runnel
