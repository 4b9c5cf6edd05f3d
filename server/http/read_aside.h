// Reads requests that take long to read on a separate thread, so that the streams of other clients
// do not wait.
#pragma once

#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

enum class Aside {
  kLongBodies,  // requests with more than a few KiB
  kAlways,      // all requests: a short one may refer to much data that the server keeps
};

// A handler that runs `handle` on ServerContext::reader for these requests. Accounts take turns
// there. `handle` then sees only the headers "authorization" and "traceparent". `state` must
// outlive every call that it begins.
HttpHandler read_aside(ServerContext& state, HttpHandler handle, Aside which = Aside::kLongBodies);

}  // namespace runnel
