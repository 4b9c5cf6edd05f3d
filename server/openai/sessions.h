// Sessions of runnel, beside OpenAI's API.
#pragma once

#include <vector>

#include "server/http/http_server.h"
#include "server/openai/gate.h"
#include "server/server_state.h"

namespace runnel {

// /v1/sessions and all below it, behind `gate`. `state` outlives the server of the routes and every
// call that it begins.
std::vector<HttpRoute> session_routes(ServerState& state, const Gate& gate);

}  // namespace runnel
