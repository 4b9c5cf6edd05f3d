// /v1/sessions/ID/state: the state of a session as a file, out with GET and in with PUT.
#pragma once

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// Both: `state` outlives the server of the route and every call that it begins.
HttpRoute export_route(ServerContext& state, const Gate& gate);
HttpRoute import_route(ServerContext& state, const Gate& gate);

}  // namespace runnel
