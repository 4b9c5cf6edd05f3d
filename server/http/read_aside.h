// Long bodies are read on a thread of their own, so that the streams of others do not wait.
#pragma once

#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

// `handle`, which for a request with more than a few KiB runs on the state's reader, where accounts
// take turns. Then it sees the headers "authorization" and "traceparent" alone. `state` outlives
// every call that it begins.
HttpHandler read_aside(ServerContext& state, HttpHandler handle);

}  // namespace runnel
