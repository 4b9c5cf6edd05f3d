// The HTTP port for Prometheus and supervisors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "config/server_config.h"
#include "server/host/event_log.h"
#include "server/http/http_server.h"

namespace runnel {

// Serves status_routes() at metrics_address. FAILED_PRECONDITION: it cannot listen on the address.
// INVALID_ARGUMENT: other machines can reach the address, and insecure_public is not set. `log` and
// `clock` must outlive the server.
Result<std::unique_ptr<HttpServer>> open_metrics_port(const ServerConfig& config,
                                                      std::function<bool()> is_ready,
                                                      std::function<std::string()> metrics,
                                                      const EventLog& log, const Clock& clock);

// The maximum number of connections at the same time.
int metrics_port_connections();

// The most memory that its clients can make it hold, if the metrics have `text_bytes` bytes.
int64_t metrics_port_bytes(int64_t text_bytes);

}  // namespace runnel
