#include "server/process/memory_bound.h"

#include "server/process/http_port.h"
#include "server/process/metrics_port.h"
#include "server/process_figures.h"

namespace runnel {
namespace {

// Measured, rounded up (tests/end_to_end/bounds_test.py).
constexpr int64_t kConnectionBytes = 32 << 10;
// What TLS adds, most of it a first message of the handshake that is as long as one may be.
constexpr int64_t kTlsBytes = 224 << 10;
constexpr int64_t kStreamBytes = 13 << 10;
// A session beside its state and its record: its entry in the table, names.
constexpr int64_t kSessionBytes = 1 << 10;
// The library holds more than its budget for a moment, while it ends calls for it, and the
// allocator keeps some of what it is given back.
constexpr int64_t kNetworkFactor = 2;
constexpr int64_t kNetworkBeside = 64 << 20;

}  // namespace

MemoryBound memory_bound(const ServerConfig& config, int64_t sessions, int64_t metrics_bytes) {
  const int64_t connection = kConnectionBytes + (config.tls_cert.empty() ? 0 : kTlsBytes) +
                             config.limit(limits::kStreamsPerConnection) * kStreamBytes;
  return {.start = process_figures().resident_bytes,
          .connections = config.limit(limits::kConnections) * connection,
          .network = kNetworkFactor * config.limit(limits::kNetworkBytes) + kNetworkBeside,
          .calls = config.limit(limits::kCallBytes),
          .records = sessions * (config.limit(limits::kRecordBytes) + kSessionBytes),
          .http = config.http_address.empty() ? 0 : http_port_bytes(config),
          .metrics = config.metrics_address.empty() ? 0 : metrics_port_bytes(metrics_bytes)};
}

}  // namespace runnel
