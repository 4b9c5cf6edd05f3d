// Requests that take long to read are read on a thread of their own, so that the streams of others
// do not wait.
#pragma once

#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

enum class Aside {
  kLongBodies,  // requests with more than a few KiB
  kAlways,      // all: a short one may stand for much that the server keeps
};

// `handle`, which for these requests runs on the state's reader, where accounts take turns. Then it
// sees the headers "authorization" and "traceparent" alone. `state` outlives every call that it
// begins.
HttpHandler read_aside(ServerContext& state, HttpHandler handle, Aside which = Aside::kLongBodies);

}  // namespace runnel
