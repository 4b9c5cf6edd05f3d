#include "server/process/http_port.h"

#include <utility>

#include "server/openai/gate.h"
#include "server/openai/routes.h"

namespace runnel {
namespace {

constexpr const char* kFlag = "--http-address";
constexpr int kThreads = 2;

HttpLimits http_limits(const ServerConfig& config) {
  HttpLimits limits;
  limits.threads = kThreads;
  limits.connections = {.in_all = static_cast<int>(config.limit(limits::kConnections)),
                        .per_peer = 0,
                        .name = "limits.connections"};
  limits.body_bytes = config.limit(limits::kMessageBytes);
  limits.bodies_bytes = config.limit(limits::kNetworkBytes);
  // By then the call has been ended, and its end has not been taken either.
  limits.write_timeout = 2 * std::chrono::milliseconds(config.limit(limits::kStallTimeoutMs));
  return limits;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> open_http_port(const ServerConfig& config, ServerState& state,
                                                   const EventLog& log) {
  Result<ListenSockets> sockets = listen_on(config.http_address, kFlag);
  if (!sockets.ok()) return sockets.status();
  if (!sockets->on_loopback && !config.insecure_public) {
    return invalid_argument(
        "http_address is " + sockets->address +
        ", which other machines reach, and prompts and keys would cross the network in the clear: "
        "put a proxy that ends TLS in front (docs/deploy.md) and listen on 127.0.0.1; or say "
        "--insecure-public if only those can reach it who may use it");
  }
  const auto on_refusal = [&state](const HttpRefusal& refusal) { report_refusal(state, refusal); };
  const Gate gate(config.http_hosts, config.http_origins, on_refusal);
  auto server = std::make_unique<HttpServer>(http_limits(config), openai_routes(state, gate), log,
                                             on_refusal);
  server->start(std::move(*sockets));
  return server;
}

int64_t http_port_bytes(const ServerConfig& config) { return http_bytes(http_limits(config)); }

}  // namespace runnel
