// The routes of runnel's own paths.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// `gate` guards all routes. `state` must outlive the server of the routes and every call that they
// begin.
std::vector<HttpRoute> rest_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
