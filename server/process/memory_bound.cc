#include "server/process/memory_bound.h"

#include "server/grpc/grpc_door.h"
#include "server/host/process_figures.h"
#include "server/process/http_port.h"
#include "server/process/metrics_port.h"
#include "storage/known_records.h"

namespace runnel {
namespace {

// Measured, rounded up (tests/end_to_end/bounds_test.py).
constexpr int64_t kConnectionBytes = 32 << 10;
// The memory that TLS adds to a connection. Most of it is for a first handshake message of maximum
// length.
constexpr int64_t kTlsBytes = 224 << 10;
// The memory of a session besides its state and its record: its entry in the table, and names.
constexpr int64_t kSessionBytes = 1 << 10;
// The library may exceed its budget briefly, while it ends calls because of it. The allocator keeps
// some of the memory that is freed.
constexpr int64_t kNetworkFactor = 2;
constexpr int64_t kNetworkBeside = 64 << 20;

int64_t connection_bytes(const ServerConfig& config) {
  return kConnectionBytes + (config.tls_cert.empty() ? 0 : kTlsBytes);
}

}  // namespace

MemoryBound memory_bound(const ServerConfig& config, int64_t sessions, int64_t metrics_bytes) {
  const int64_t connections = config.limit(limits::kConnections);
  const int64_t calls = connections * config.limit(limits::kStreamsPerConnection);
  return {.start = process_figures().resident_bytes,
          .connections = connections * connection_bytes(config) + calls * kBytesPerCall +
                         kAbandonedCalls * kBytesPerAbandonedCall,
          .network = kNetworkFactor * config.limit(limits::kNetworkBytes) + kNetworkBeside,
          .calls = config.limit(limits::kCallBytes),
          .records = sessions * (config.limit(limits::kRecordBytes) + kSessionBytes) +
                     (config.storage_url.empty() ? 0 : int64_t{kKnownRecordsBytes}),
          .http = config.http_address.empty() ? 0 : http_port_bytes(config),
          .metrics = config.metrics_address.empty() ? 0 : metrics_port_bytes(metrics_bytes)};
}

MemoryAllowance memory_allowance(const ServerConfig& config, const MemoryBound& bound,
                                 int64_t reload) {
  // Counts the bytes of messages on their way once. gRPC copies the headers of a connection that is
  // cut off up to three times, and the figure must hold then, too.
  const int64_t network = bound.network - config.limit(limits::kNetworkBytes);
  return {.fixed = bound.start + network + bound.records + bound.http + bound.metrics + reload,
          .per_connection = connection_bytes(config),
          .per_call = kBytesPerCall};
}

}  // namespace runnel
