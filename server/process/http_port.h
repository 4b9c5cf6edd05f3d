// The port of the doors that speak HTTP.
#pragma once

#include <memory>

#include "base/status.h"
#include "config/server_config.h"
#include "server/host/event_log.h"
#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

// Serves http_routes() at http_address. FAILED_PRECONDITION: it cannot listen on the address.
// INVALID_ARGUMENT: other machines can reach the address, which has no TLS, and insecure_public is
// not set. `state` and `log` must outlive the server. Its calls end with the server.
Result<std::unique_ptr<HttpServer>> open_http_port(const ServerConfig& config, ServerContext& state,
                                                   const EventLog& log);

// The maximum memory that clients can make the server hold, apart from their calls.
int64_t http_port_bytes(const ServerConfig& config);

}  // namespace runnel
