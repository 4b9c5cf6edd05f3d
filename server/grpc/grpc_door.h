// The gRPC door: the services of the wire contract, health and reflection.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "server/host/event_log.h"
#include "server/host/metrics_text.h"
#include "server/host/server_context.h"
#include "server/host/task_thread.h"
#include "server/net/listener.h"
#include "server/net/memory_watch.h"
#include "server/net/server_certificate.h"

namespace runnel {

struct GrpcOptions {
  std::string address = "127.0.0.1:0";
  bool insecure_public = false;  // may listen on a public address although anyone could then call
  TlsFiles tls;
  int64_t message_bytes = limits::kMessageBytes.default_value;
  int64_t streams_per_connection = limits::kStreamsPerConnection.default_value;
  int64_t connections = limits::kConnections.default_value;
  int64_t connection_age_ms = limits::kConnectionAgeMs.default_value;
  int64_t network_bytes = limits::kNetworkBytes.default_value;
};

// The maximum number of calls that clients have reset and gRPC has not released yet. They do not
// count as calls of open connections.
inline constexpr int64_t kAbandonedCalls = 1024;
// The memory of a call before its first message, and of a call that was reset. Measured, rounded up
// (tests/end_to_end/bounds_test.py).
inline constexpr int64_t kBytesPerCall = 13 << 10;
inline constexpr int64_t kBytesPerAbandonedCall = 64 << 10;

// One thread calls start(), then ready(), perhaps unready(), then refuse() and stop().
class GrpcDoor {
 public:
  // `context` must outlive the door, and its calls must end before stop().
  GrpcDoor(GrpcOptions options, ServerContext& context);
  GrpcDoor(const GrpcDoor&) = delete;
  GrpcDoor& operator=(const GrpcDoor&) = delete;
  // Calls stop().
  ~GrpcDoor();

  // Listens. Health is NOT_SERVING until ready(). FAILED_PRECONDITION: it cannot listen on the
  // address. INVALID_ARGUMENT: other machines could reach the address, which the options forbid.
  // INVALID_ARGUMENT or NOT_FOUND: a file for TLS cannot be used.
  Status start();
  // From start() until stop().
  bool is_open() const { return server_ != nullptr; }
  // The address for clients, with the port that the system chose if it was 0. Only after start()
  // has succeeded.
  const std::string& address() const { return listener_->address(); }

  // Health says SERVING.
  void ready() { set_health(true); }
  // Health says NOT_SERVING.
  void unready() { set_health(false); }
  // Health says NOT_SERVING, permanently.
  void refuse();
  // Closes every connection. Returns within a second. Does nothing if the door is not open.
  void stop();

  // To be called about once a second while the door is open. Reads the certificate again if its
  // files have changed, and returns memory to the system after a flood.
  void tend();

  // Sets the memory that the process may use besides the memory that its calls hold. If traffic
  // makes the process exceed it, the connections that cause this are cut off. An empty allowance:
  // none are cut off because of memory. Any thread may call this.
  void allow_memory(const MemoryAllowance& allowance) { memory_watch_.allow(allowance); }

  // Any thread may call this while the door is open.
  ConnectionFigures connections() const;

  // A channel without a socket.
  std::shared_ptr<grpc::Channel> in_process_channel();

 private:
  struct NewConnection;

  Status load_credentials();
  void build_server();
  void listen(ListenSockets sockets);
  void set_health(bool serving);
  Flood measure_flood(int connections) const;
  void return_memory();

  const GrpcOptions options_;
  ServerContext& context_;
  std::atomic<int64_t> accepted_calls_{0};  // calls that gRPC has accepted and not released
  MemoryWatch memory_watch_;
  int64_t floods_ = 0;  // floods whose memory has been returned; only tend() uses it
  int trims_left_ = 0;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<ServerCertificate> certificate_;  // null: no TLS
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::Server> server_;  // its calls use all of the above
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<Listener> listener_;  // destroyed first
  // Hands connections to gRPC. The listener's thread cannot do this: gRPC may keep the thread that
  // hands over a connection, and read from the connection as long as bytes arrive, but the listener
  // must stop floods.
  std::unique_ptr<TaskThread> handing_over_;
  std::atomic<bool> takes_connections_{true};
};

}  // namespace runnel
