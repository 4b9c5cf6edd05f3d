// POST /v1/completions.
#pragma once

#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

// Answers the request with what its prompts come to, each a Generate call of its own; none of them
// continues without the others. A stream's head is sent once all have been admitted. `state`
// outlives the calls, which it counts.
void start_completion(ServerContext& state, const HttpRequest& request, HttpReply reply);

}  // namespace runnel
