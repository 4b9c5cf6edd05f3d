// What is served of OpenAI's API, and beside it.
#pragma once

#include <vector>

#include "server/http/http_server.h"
#include "server/openai/gate.h"
#include "server/server_state.h"

namespace runnel {

// What openapi.json describes, all behind `gate`. `state` outlives the server of the routes and
// every call that it begins.
std::vector<HttpRoute> openai_routes(ServerState& state, const Gate& gate);

// Reports a request that comes to none of them, or not past the gate.
void report_refusal(ServerState& state, const HttpRefusal& refusal);

}  // namespace runnel
