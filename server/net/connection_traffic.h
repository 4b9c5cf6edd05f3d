// Which addresses have sent the most of late.
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

// Of each connection, by descriptor.
using Received = std::map<int, Traffic>;

// The bytes that the system has received on a TCP connection; 0 where it does not say.
int64_t bytes_received(int socket);

// The fewest addresses whose connections have received nine tenths of all bytes between `before`
// and `now`, the busiest first; none that have received less than 64 KiB. A connection that is not
// in `before` is new.
std::vector<std::string> busiest(const Received& before, const Received& now);

// Ends a TCP connection with a reset. What it has received and nobody has read is gone, which
// shutdown() would leave to be read.
void cut_off(int socket);

}  // namespace runnel
