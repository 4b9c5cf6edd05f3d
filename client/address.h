// The address of a server: its form, and what answers there when a connection fails.
#pragma once

#include <chrono>
#include <string>

#include "base/status.h"

namespace runnel {

// OK for "host:port" ("[::1]:50051" for IPv6) and for gRPC's own schemes ("unix:/run/runnel.sock",
// "dns:///name:port"). INVALID_ARGUMENT says what is wrong and shows the right form.
Status check_server_address(const std::string& address);

// Why no call reaches `address`: opens one plain connection, for no longer than `at_most`, and says
// on one line what it found and what to do. UNAVAILABLE when nothing listens, the host is unknown,
// or another protocol answers; DEADLINE_EXCEEDED when the peer has not answered `after` seconds.
// `refused`: gRPC has given up by itself, before its time was over.
Status explain_silence(const std::string& address, bool refused,
                       std::chrono::duration<double> after, std::chrono::milliseconds at_most);

}  // namespace runnel
