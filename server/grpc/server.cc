#include "server/grpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "server/grpc/services.h"
#include "server/grpc/tls_credentials.h"
#include "server/metrics_text.h"

namespace runnel {
namespace {

constexpr std::array kServiceNames = {"", "runnel.v1.Inference", "runnel.v1.Sessions",
                                      "runnel.v1.Models", "runnel.v1.Admin"};
constexpr int kMetadataBytes = 16 << 10;
constexpr auto kTend = std::chrono::seconds(1);
constexpr auto kEndedStreams = std::chrono::milliseconds(500);  // to send their status
constexpr auto kQuiet = std::chrono::milliseconds(30);
constexpr auto kLastCalls = std::chrono::milliseconds(300);
constexpr auto kShutdown = std::chrono::milliseconds(500);  // before calls are cut off

// A connection whose peer is gone is found and closed; one that only pings is not fed.
void set_connection_arguments(grpc::ServerBuilder& builder, const ServerOptions& options) {
  // A compressed message would be inflated without a bound before its size is looked at.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes));
  const auto set = [&](const char* name, int value) { builder.AddChannelArgument(name, value); };
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(options.streams_per_connection));
  set(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  // Calls have all the time that they need to end: the grace after the age is the library's
  // default, without an end.
  set(GRPC_ARG_MAX_CONNECTION_AGE_MS, static_cast<int>(options.connection_age_ms));
  set(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000);
  set(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server on a port is an error, not a lottery
}

// Other machines reach a server only over TLS and with a credential, unless that is said by name.
Status check_reach(const ListenSockets& sockets, const ServerOptions& options) {
  if (sockets.on_loopback || options.insecure_public) return {};
  const bool tls = !options.tls.certificate.empty();
  std::string fault;
  if (options.keys.empty() && options.tls.client_authorities.empty()) {
    fault =
        "anybody could call: make keys with 'runnel key new' and set --keys, or set "
        "--tls-client-ca";
  } else if (!tls) {
    fault =
        "keys would cross the network in the clear: set --tls-cert and --tls-key, or put a proxy "
        "that ends TLS in front (docs/deploy.md) and listen on 127.0.0.1";
  } else {
    return {};
  }
  return invalid_argument("address is " + sockets.address + ", which other machines reach, and " +
                          fault +
                          "; or say --insecure-public if only those can reach it who may use it");
}

}  // namespace

Server::Server(ServerOptions options, const EventLog& log)
    : options_(std::move(options)), log_(log), state_(log, options_.call_bytes) {
  state_.delivery = options_.delivery;
  state_.text_bytes = options_.text_bytes;
  state_.stall_timeout = options_.stall_timeout;
  state_.access_log = options_.access_log;
  state_.version = options_.version;
  services_.push_back(make_inference_service(state_));
  services_.push_back(make_session_service(state_));
  services_.push_back(make_model_service(state_));
  services_.push_back(make_admin_service(state_));
}

Server::~Server() { drain(Duration(0)); }

Status Server::load_credentials() {
  credentials_ = grpc::InsecureServerCredentials();
  if (options_.tls.certificate.empty()) return {};
  certificate_ = std::make_unique<ServerCertificate>(options_.tls, log_);
  if (Status s = certificate_->load(); !s.ok()) return s;
  credentials_ = tls_credentials(*certificate_);
  return {};
}

Status Server::start() {
  if (Status s = load_credentials(); !s.ok()) return s;
  Result<ListenSockets> sockets = listen_on(options_.address);
  if (!sockets.ok()) return sockets.status();
  if (Status s = check_reach(*sockets, options_); !s.ok()) return s;
  if (!options_.keys.empty()) {
    if (Status s = state_.callers.ask_for_keys(options_.keys); !s.ok()) return s;
  }
  if (!options_.seal_key.empty()) {
    Result<SealKey> key = read_seal_key(options_.seal_key);
    if (!key.ok()) return key.status();
    state_.seal_key = std::move(*key);
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  set_connection_arguments(builder, options_);
  // What messages hold on their way. Beyond it, the library ends calls with RESOURCE_EXHAUSTED.
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(options_.network_bytes));
  builder.SetResourceQuota(quota);
  for (const auto& service : services_) builder.RegisterService(service.get());
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials_);
  server_ = builder.BuildAndStart();
  check(server_ != nullptr, "a server without a port starts");
  set_serving(false);
  listener_ = std::make_unique<Listener>(
      std::move(*sockets), ConnectionLimits{.in_all = static_cast<int>(options_.connections)},
      log_);
  listener_->start([this](int socket) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket;
    acceptor_->HandleNewConnection(&connection);
  });
  return {};
}

std::string Server::metrics_text() const {
  return runnel::metrics_text(state_,
                              {.open = listener_->connections(), .refused = listener_->refusals()});
}

void Server::tend() {
  state_.callers.refresh(log_);
  if (certificate_ != nullptr) certificate_->refresh();
  state_.calls.tend_all(std::chrono::steady_clock::now());
}

void Server::set_serving(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  check(health != nullptr, "the default health service is enabled");
  for (const char* name : kServiceNames) health->SetServingStatus(name, serving);
  serving_.store(serving, std::memory_order_release);
}

void Server::ready() {
  state_.models.open();
  set_serving(true);
}

Status Server::failure() const {
  const auto models = state_.models.all();
  for (const auto& [name, model] : *models) {
    if (Status s = model->engine->failure(); !s.ok()) return s;
  }
  return {};
}

std::shared_ptr<grpc::Channel> Server::in_process_channel() {
  return server_->InProcessChannel(grpc::ChannelArguments());
}

void Server::drain(Duration grace) {
  if (server_ == nullptr) return;
  log_.info("drain", {{"streams", int64_t{state_.calls.count()}},
                      {"grace_ms", int64_t{grace / std::chrono::milliseconds(1)}}});
  state_.draining.store(true, std::memory_order_release);
  serving_.store(false, std::memory_order_release);
  server_->GetHealthCheckService()->Shutdown();
  state_.models.drain();
  if (!wait_until_none(grace)) {
    Status status(Code::kUnavailable,
                  "the server is shutting down and the call had not ended in time; go on with "
                  "another server");
    state_.calls.end_all(status.with_reason("draining"));
    state_.calls.wait_until_none(kEndedStreams);
  }
  // The library answers a call that comes during its shutdown with CANCELLED. Those that are on
  // their way by now are still to hear UNAVAILABLE.
  state_.calls.wait_until_quiet(kQuiet, kLastCalls);
  listener_->stop();
  server_->Shutdown(std::chrono::system_clock::now() + kShutdown);
  server_->Wait();
  server_.reset();
  log_.info("drained", {});
}

// tend() goes on meanwhile: a client that neither sends nor reads does not use up the grace.
bool Server::wait_until_none(Duration at_most) {
  const TimePoint end = std::chrono::steady_clock::now() + at_most;
  for (;;) {
    const Duration left = end - std::chrono::steady_clock::now();
    if (state_.calls.wait_until_none(std::clamp(left, Duration(0), Duration(kTend)))) return true;
    if (left <= Duration(kTend)) return false;
    tend();
  }
}

}  // namespace runnel
