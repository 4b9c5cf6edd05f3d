// The HTTP routes of runnel's own API, which the door REST serves.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// `gate` guards all routes. `state` must outlive the HTTP server that has these routes, and every
// call that they begin.
std::vector<HttpRoute> rest_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
