// The routes of sessions, which OpenAI's API does not have.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// /v1/sessions and all paths below it. `gate` guards them. `state` must outlive the server of the
// routes and every call that it begins.
std::vector<HttpRoute> session_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
