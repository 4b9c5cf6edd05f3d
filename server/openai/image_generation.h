// POST /v1/images/generations.
#pragma once

#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

// Answers the request with pictures. One Generate call draws all of them. If the answer is a
// stream, its status line and headers are sent when the call has been admitted. `state` must
// outlive the call.
void start_image_generation(ServerContext& state, const HttpRequest& request, HttpReply reply);

}  // namespace runnel
