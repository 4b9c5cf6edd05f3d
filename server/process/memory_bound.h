// The most memory that a serving process may come to use: what it has once its models are loaded,
// and every budget. docs/security.md names what is beyond.
#pragma once

#include <cstdint>

#include "config/server_config.h"
#include "server/net/memory_watch.h"

namespace runnel {

// In bytes.
struct MemoryBound {
  int64_t start = 0;        // resident now: program, weights, states, workspace
  int64_t connections = 0;  // what connections and streams cost before their first message
  int64_t network = 0;      // messages on their way
  int64_t calls = 0;        // requests, answers, streams
  int64_t records = 0;      // what sessions keep beside their states
  int64_t http = 0;         // connections to http_address, and what is read there
  int64_t metrics = 0;      // connections to metrics_address, and answers there

  int64_t total() const { return start + connections + network + calls + records + http + metrics; }
};

// Of this process, which has just loaded the models of `config`, with `sessions` states in all and
// so many bytes of metrics.
MemoryBound memory_bound(const ServerConfig& config, int64_t sessions, int64_t metrics_bytes);

// The same where the connections and calls that are there are counted, and not the most that may
// come; a reload may take `reload` bytes more.
MemoryAllowance memory_allowance(const ServerConfig& config, const MemoryBound& bound,
                                 int64_t reload);

}  // namespace runnel
