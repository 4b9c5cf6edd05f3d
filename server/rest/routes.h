// The routes of runnel's own paths.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// All behind `gate`. `state` outlives the server of the routes and every call that they begin.
std::vector<HttpRoute> rest_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
