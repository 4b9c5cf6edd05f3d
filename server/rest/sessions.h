// Sessions of runnel, beside OpenAI's API.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// /v1/sessions and all below it, behind `gate`. `state` outlives the server of the routes and every
// call that it begins.
std::vector<HttpRoute> session_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
