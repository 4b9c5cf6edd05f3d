// The port on which Prometheus and supervisors ask a process by HTTP.
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

// Serves status_routes() at metrics_address. FAILED_PRECONDITION when the address cannot be had,
// INVALID_ARGUMENT when other machines reach it and insecure_public is not set. `log` and `clock`
// outlive it.
Result<std::unique_ptr<HttpServer>> open_metrics_port(const ServerConfig& config,
                                                      std::function<bool()> is_ready,
                                                      std::function<std::string()> metrics,
                                                      const EventLog& log, const Clock& clock);

// Connections that it has at once.
int metrics_port_connections();

// What its clients can make it hold at most, while the text of the metrics has so many bytes.
int64_t metrics_port_bytes(int64_t text_bytes);

}  // namespace runnel
