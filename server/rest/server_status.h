// GET /v1/status: the served models and their counters.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"

namespace runnel {

// Answers with a JSON object. It has the program's `version` and, for each model that the caller
// may use, its description, its sessions in use and free, and the counters to compute rates from.
// 503 before the models are loaded; 401 without a valid key if keys are required. `state` must
// outlive the server of the routes. A request that is answered is not in the access log and not
// counted, so that a page may ask once a second.
std::vector<HttpRoute> server_status_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
