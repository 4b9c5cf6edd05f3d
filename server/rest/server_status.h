// GET /v1/status: the served models and their counters.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"

namespace runnel {

// Answers with a JSON object: the program's `version` and, of each model that the caller may use,
// its description, its sessions in use and free, and the counters that rates are made of. 503
// before the models are loaded, 401 without a valid key where keys are asked for. `state` outlives
// it. A request that is answered has no line in the access log and is not counted, so that a page
// may ask once a second.
std::vector<HttpRoute> server_status_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
