// /v1/sessions/ID/state: GET exports the state of a session as a file, and PUT imports it.
#pragma once

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// For both, `state` must outlive the server of the route and every call that it begins.
HttpRoute export_route(ServerContext& state, const Gate& gate);
HttpRoute import_route(ServerContext& state, const Gate& gate);

}  // namespace runnel
