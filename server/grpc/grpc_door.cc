#include "server/grpc/grpc_door.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "server/grpc/call_contexts.h"
#include "server/grpc/reflection_service.h"
#include "server/grpc/services.h"
#include "server/grpc/tls_credentials.h"

namespace runnel {
namespace {

constexpr std::array kServiceNames = {"", "runnel.v1.Inference", "runnel.v1.Sessions",
                                      "runnel.v1.Models", "runnel.v1.Admin"};
constexpr int kMetadataBytes = 16 << 10;
constexpr int kReadBytes = 16 << 10;
constexpr int kTrims = 30;                                  // after a flood, one per second
constexpr auto kShutdown = std::chrono::milliseconds(500);  // before calls are cut off

// Sets the limits of connections. They also make gRPC close connections whose peer has gone, and
// connections that ping too often.
void set_connection_arguments(grpc::ServerBuilder& builder, const GrpcOptions& options) {
  // The library would inflate a compressed message without a limit before checking its size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes));
  const auto set = [&](const char* name, int value) { builder.AddChannelArgument(name, value); };
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(options.streams_per_connection));
  set(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  // Calls get all the time they need to end: the library's default grace after the age is
  // unlimited.
  set(GRPC_ARG_MAX_CONNECTION_AGE_MS, static_cast<int>(options.connection_age_ms));
  // Reads are small, because gRPC parses the bytes that it has read even after their connection was
  // cut off.
  set(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadBytes);
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000);
  set(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server on a port is an error
}

// Other machines may reach a server only over TLS and with a credential, unless the operator allows
// more explicitly.
Status check_reach(const ListenSockets& sockets, const GrpcOptions& options, bool has_keys) {
  if (sockets.on_loopback || options.insecure_public) return {};
  const bool tls = !options.tls.certificate.empty();
  std::string fault;
  if (!has_keys && options.tls.client_authorities.empty()) {
    fault =
        "anybody could call: make keys with 'runnel key new' and set --keys, or set "
        "--tls-client-ca";
  } else if (!tls) {
    fault =
        "keys would cross the network in the clear: set --tls-cert and --tls-key, or put a proxy "
        "that ends TLS in front (docs/tls.md) and listen on 127.0.0.1";
  } else {
    return {};
  }
  return invalid_argument("address is " + sockets.address + ", which other machines reach, and " +
                          fault +
                          "; or say --insecure-public if only those can reach it who may use it");
}

}  // namespace

struct GrpcDoor::NewConnection {
  GrpcDoor& door;
  Descriptor socket;

  void hand_over() {
    if (!door.takes_connections_.load(std::memory_order_acquire)) return;
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket.release();
    door.acceptor_->HandleNewConnection(&connection);
  }
};

GrpcDoor::GrpcDoor(GrpcOptions options, ServerContext& context)
    : options_(std::move(options)), context_(context) {
  services_.push_back(make_inference_service(context_));
  services_.push_back(make_session_service(context_));
  services_.push_back(make_model_service(context_));
  services_.push_back(make_admin_service(context_));
  std::vector<std::string> names = {"grpc.health.v1.Health",
                                    "grpc.reflection.v1alpha.ServerReflection"};
  names.insert(names.end(), kServiceNames.begin() + 1, kServiceNames.end());
  services_.push_back(make_reflection_service(context_, std::move(names)));
}

GrpcDoor::~GrpcDoor() { stop(); }

Status GrpcDoor::start() {
  if (Status s = load_credentials(); !s.ok()) return s;
  Result<ListenSockets> sockets = listen_on(options_.address);
  if (!sockets.ok()) return sockets.status();
  if (Status s = check_reach(*sockets, options_, context_.callers.has_keys()); !s.ok()) return s;
  build_server();
  set_health(false);
  listen(std::move(*sockets));
  return {};
}

Status GrpcDoor::load_credentials() {
  credentials_ = grpc::InsecureServerCredentials();
  if (options_.tls.certificate.empty()) return {};
  certificate_ = std::make_unique<ServerCertificate>(options_.tls, context_.log);
  if (Status s = certificate_->load(); !s.ok()) return s;
  credentials_ = tls_credentials(*certificate_);
  return {};
}

void GrpcDoor::build_server() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  set_connection_arguments(builder, options_);
  // Limits the memory of messages in flight. Beyond it, the library ends calls with
  // RESOURCE_EXHAUSTED.
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(options_.network_bytes));
  builder.SetResourceQuota(quota);
  builder.SetContextAllocator(std::make_unique<CallContexts>(accepted_calls_));
  for (const auto& service : services_) builder.RegisterService(service.get());
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials_);
  server_ = builder.BuildAndStart();
  check(server_ != nullptr, "a server without a port starts");
}

void GrpcDoor::listen(ListenSockets sockets) {
  listener_ = std::make_unique<Listener>(
      std::move(sockets), ConnectionLimits{.in_all = static_cast<int>(options_.connections)},
      context_.log, context_.clock);
  handing_over_ = std::make_unique<TaskThread>(&context_.mishaps);
  listener_->start(
      [this](int socket) {
        handing_over_->post<&NewConnection::hand_over>(
            std::make_shared<NewConnection>(*this, Descriptor(socket)));
      },
      [this](int connections) { return measure_flood(connections); });
}

// A connection has at most streams_per_connection calls, but calls that were reset do not count.
Flood GrpcDoor::measure_flood(int connections) const {
  const int64_t calls = accepted_calls_.load(std::memory_order_relaxed);
  const int64_t too_many = calls - kAbandonedCalls - connections * options_.streams_per_connection;
  if (too_many > 0) return {too_many * kBytesPerCall, "calls that are begun and reset"};
  return {memory_watch_.excess(connections, calls, context_.memory.held()),
          "memory that no call explains"};
}

// Returns to the system what a flood has freed, because the allocator would keep it. Waits until
// the calls have ended: malloc_trim() locks the allocator, and the listener must be able to stop a
// flood.
void GrpcDoor::return_memory() {
  const int64_t floods = listener_->floods();
  if (floods != floods_) trims_left_ = kTrims;
  floods_ = floods;
  if (trims_left_ == 0 || accepted_calls_.load(std::memory_order_relaxed) > kAbandonedCalls) return;
  --trims_left_;
  malloc_trim(0);
}

void GrpcDoor::tend() {
  return_memory();
  if (certificate_ != nullptr) certificate_->refresh();
}

ConnectionFigures GrpcDoor::connections() const {
  return {.open = listener_->connections(), .refused = listener_->refusals()};
}

void GrpcDoor::set_health(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  check(health != nullptr, "the default health service is enabled");
  for (const char* name : kServiceNames) health->SetServingStatus(name, serving);
}

std::shared_ptr<grpc::Channel> GrpcDoor::in_process_channel() {
  return server_->InProcessChannel(grpc::ChannelArguments());
}

void GrpcDoor::refuse() { server_->GetHealthCheckService()->Shutdown(); }

void GrpcDoor::stop() {
  if (!is_open()) return;
  listener_->stop();
  takes_connections_.store(false, std::memory_order_release);
  server_->Shutdown(std::chrono::system_clock::now() + kShutdown);
  server_->Wait();
  handing_over_.reset();
  server_.reset();
}

}  // namespace runnel
