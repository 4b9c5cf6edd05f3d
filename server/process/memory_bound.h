// The maximum memory that a serving process may use: the memory after its models are loaded, and
// every budget. docs/security.md names the memory that is not included.
#pragma once

#include <cstdint>

#include "config/server_config.h"
#include "server/net/memory_watch.h"

namespace runnel {

// In bytes.
struct MemoryBound {
  int64_t start = 0;        // resident now: program, weights, states, workspace
  int64_t connections = 0;  // connections and streams before their first message
  int64_t network = 0;      // messages in transit
  int64_t calls = 0;        // requests, answers, streams
  int64_t records = 0;      // data of sessions in addition to their states
  int64_t http = 0;         // connections to http_address, and the data that is read there
  int64_t metrics = 0;      // connections to metrics_address, and answers there

  int64_t total() const { return start + connections + network + calls + records + http + metrics; }
};

// The bound of this process, which has just loaded the models of `config`. `sessions`: the number
// of all states. `metrics_bytes`: the size of the metrics.
MemoryBound memory_bound(const ServerConfig& config, int64_t sessions, int64_t metrics_bytes);

// The same for a given number of connections and calls, instead of the maximum numbers. A reload
// may take `reload` more bytes.
MemoryAllowance memory_allowance(const ServerConfig& config, const MemoryBound& bound,
                                 int64_t reload);

}  // namespace runnel
