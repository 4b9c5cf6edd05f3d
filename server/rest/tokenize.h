// Converts texts to tokens and back, with the paths and fields of llama-server and vLLM.
#pragma once

#include <vector>

#include "server/host/server_context.h"
#include "server/http/gate.h"
#include "server/http/http_server.h"

namespace runnel {

// /tokenize, /detokenize and /tokenizer_info. `gate` guards them. `state` must outlive the server
// of the routes and every call that it begins.
std::vector<HttpRoute> tokenize_routes(ServerContext& state, const Gate& gate);

}  // namespace runnel
