// The routes for supervisors: health, readiness and metrics.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/http/http_server.h"

namespace runnel {

// - GET /healthz is 200 while the process runs.
// - GET /readyz is 200 if is_ready() is true, else 503.
// - GET /metrics is the text that metrics() returns, in Prometheus' text format.
// Both functions are called on a thread of the HTTP server.
std::vector<HttpRoute> status_routes(std::function<bool()> is_ready,
                                     std::function<std::string()> metrics);

}  // namespace runnel
