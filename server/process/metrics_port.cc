#include "server/process/metrics_port.h"

#include <utility>

#include "server/http/status_routes.h"

namespace runnel {
namespace {

constexpr const char* kMetricsFlag = "--metrics-address";

// Sized for a few clients that ask now and then.
HttpLimits metrics_limits() {
  HttpLimits limits;
  limits.connections = {
      .in_all = 32, .per_peer = 16, .name = "the limit of connections to metrics_address"};
  return limits;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> open_metrics_port(const ServerConfig& config,
                                                      std::function<bool()> is_ready,
                                                      std::function<std::string()> metrics,
                                                      const EventLog& log, const Clock& clock) {
  Result<ListenSockets> sockets = listen_on(config.metrics_address, kMetricsFlag);
  if (!sockets.ok()) return sockets.status();
  if (!sockets->on_loopback && !config.insecure_public) {
    return invalid_argument(
        "metrics_address is " + sockets->address +
        ", which other machines reach, and anybody could read: listen on 127.0.0.1, or say "
        "--insecure-public if only those can reach it who may");
  }
  auto server = std::make_unique<HttpServer>(metrics_limits(),
                                             status_routes(std::move(is_ready), std::move(metrics)),
                                             log, HttpHooks(), clock);
  if (Status s = server->start(std::move(*sockets)); !s.ok()) return s;
  return server;
}

int metrics_port_connections() { return metrics_limits().connections.in_all; }

int64_t metrics_port_bytes(int64_t text_bytes) {
  const HttpLimits limits = metrics_limits();
  // A string may have twice the capacity that it needs.
  return http_bytes(limits) + limits.connections.in_all * 2 * text_bytes;
}

}  // namespace runnel
