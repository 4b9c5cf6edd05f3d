// The OpenAPI description of the HTTP routes: openapi.json with the limits of this server.
#pragma once

#include <string>

namespace runnel {

struct ServerContext;

std::string openapi_json(const ServerContext& state);

}  // namespace runnel
