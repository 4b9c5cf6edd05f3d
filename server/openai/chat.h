// POST /v1/chat/completions.
#pragma once

#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

// Renders the conversation with the model's template, and answers it as start_answer() does.
void start_chat(ServerContext& state, const HttpRequest& request, HttpReply reply);

}  // namespace runnel
