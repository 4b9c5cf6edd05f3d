// /v1/sessions/ID/state: the state of a session as a file, out with GET and in with PUT.
#pragma once

#include "server/http/http_server.h"
#include "server/openai/gate.h"
#include "server/server_state.h"

namespace runnel {

// Both: `state` outlives the server of the route and every call that it begins.
HttpRoute export_route(ServerState& state, const Gate& gate);
HttpRoute import_route(ServerState& state, const Gate& gate);

}  // namespace runnel
