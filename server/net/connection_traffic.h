// Finds the addresses that have recently sent the most bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace runnel {

// The bytes that a connection has received since it was accepted.
struct Traffic {
  std::string peer;  // network_of() its address
  int64_t bytes = 0;
};

// The traffic of each connection, by descriptor.
using Received = std::map<int, Traffic>;

// The bytes that the system has received on a TCP connection. 0 if the system does not report it.
int64_t bytes_received(int socket);

// The fewest addresses whose connections have received nine tenths of all bytes between `before`
// and `now`, the busiest first. Addresses with less than 64 KiB are left out. A connection that is
// not in `before` is new.
std::vector<std::string> busiest(const Received& before, const Received& now);

// Ends a TCP connection with a reset. Received bytes that nobody has read are discarded. After
// shutdown() they could still be read.
void cut_off(int socket);

}  // namespace runnel
