// The routes of all doors that use HTTP. A new door adds its routes here.
#pragma once

#include <string>
#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// The document of /openapi.json: the paths of all doors, with the limits of this server.
std::string openapi_json(const ServerContext& state);

// The routes of the doors, /openapi.json, the page, and OPTIONS of every path. `gate` guards all of
// them. `state` must outlive the server of the routes and every call that it begins.
std::vector<HttpRoute> http_routes(ServerContext& state, const Gate& gate);

// Reports a request that matches no route, or that the gate refuses.
void report_refusal(ServerContext& state, const HttpRefusal& refusal);

}  // namespace runnel
