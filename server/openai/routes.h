// The routes of OpenAI's API.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// Models, completions, chat, images and /openapi.json. `gate` guards all of them. `state` must
// outlive the server of the routes and every call that it begins.
std::vector<HttpRoute> openai_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
