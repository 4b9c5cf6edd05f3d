// POST /v1/images/generations.
#pragma once

#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

// Answers the request with pictures, all drawn by one Generate call. A stream's head is sent once
// the call has been admitted. `state` outlives the call, which it counts.
void start_image_generation(ServerContext& state, const HttpRequest& request, HttpReply reply);

}  // namespace runnel
