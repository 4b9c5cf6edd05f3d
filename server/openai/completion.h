// POST /v1/completions.
#pragma once

#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

// Answers the request. Each of its prompts is a Generate call. If one fails, all end. The head of a
// stream is sent as start_answer() says. `state` must outlive the calls, which it counts.
void start_completion(ServerContext& state, const HttpRequest& request, HttpReply reply);

}  // namespace runnel
