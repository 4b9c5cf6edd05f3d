#include "server/process/http_port.h"

#include <utility>

#include "server/http/gate.h"
#include "server/process/http_routes.h"
#include "server/web/page.h"

namespace runnel {
namespace {

constexpr const char* kHttpFlag = "--http-address";
constexpr int kThreads = 2;
constexpr int kLingeringShare = 8;  // one of this many connections may linger

HttpLimits http_limits(const ServerConfig& config) {
  HttpLimits limits;
  limits.threads = kThreads;
  limits.connections = {.in_all = static_cast<int>(config.limit(limits::kConnections)),
                        .per_peer = 0,
                        .name = "limits.connections"};
  limits.lingering = limits.connections.in_all / kLingeringShare;
  limits.body_bytes = config.limit(limits::kMessageBytes);
  limits.body_setting = "limits.message_bytes";
  limits.bodies_bytes = config.limit(limits::kNetworkBytes);
  // A call ends after half of this time if its client reads nothing. The connection is closed if
  // the client then does not read the call's end, either.
  limits.write_timeout = 2 * std::chrono::milliseconds(config.limit(limits::kStallTimeoutMs));
  return limits;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> open_http_port(const ServerConfig& config, ServerContext& state,
                                                   const EventLog& log) {
  Result<ListenSockets> sockets = listen_on(config.http_address, kHttpFlag);
  if (!sockets.ok()) return sockets.status();
  if (!sockets->on_loopback && !config.insecure_public) {
    return invalid_argument(
        "http_address is " + sockets->address +
        ", which other machines reach, and prompts and keys would cross the network in the clear: "
        "put a proxy that ends TLS in front (docs/tls.md) and listen on 127.0.0.1; or say "
        "--insecure-public if only those can reach it who may use it");
  }
  if (!sockets->on_loopback && config.http_hosts.empty()) {
    log.warn(
        "http_hosts",
        {{"message", "--http-address is " + sockets->address +
                         ", but --http-hosts names no host: requests that ask for another one than "
                         "localhost get 403"}});
  }
  const auto on_refusal = [&state](const HttpRefusal& refusal) { report_refusal(state, refusal); };
  const Gate gate(config.http_hosts, config.http_origins, on_refusal);
  const HttpHooks hooks = {
      .on_refusal = on_refusal,
      .headers_for = [gate](const HttpHeaderOf& header) { return gate.headers_for(header); }};
  auto server = std::make_unique<HttpServer>(http_limits(config), http_routes(state, gate), log,
                                             hooks, state.clock);
  if (Status s = server->start(std::move(*sockets)); !s.ok()) return s;
  return server;
}

int64_t http_port_bytes(const ServerConfig& config) {
  const HttpLimits limits = http_limits(config);
  return http_bytes(limits) + limits.connections.in_all * largest_page_answer();
}

}  // namespace runnel
