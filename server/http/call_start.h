// The start of a call over HTTP, known before its body is read.
#pragma once

#include "server/calls/call_report.h"
#include "server/host/server_context.h"
#include "server/http/http_server.h"

namespace runnel {

// The caller of a request, by the key in "Authorization: Bearer KEY" or by the address.
Result<Caller> caller_of(const ServerContext& state, const HttpRequest& request);

// caller_of(), and the trace of the call. `rpc` must have static storage.
CallStart call_start(const char* rpc, const ServerContext& state, const HttpRequest& request);

}  // namespace runnel
