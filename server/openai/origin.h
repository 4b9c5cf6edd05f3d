// What HTTP says of a call before its body is read.
#pragma once

#include "server/call_report.h"
#include "server/http/http_server.h"
#include "server/server_state.h"

namespace runnel {

// Who calls, by the key in "Authorization: Bearer KEY" or the address, and the trace of the call.
// `rpc` is of static storage.
CallOrigin origin_of(const char* rpc, const ServerState& state, const HttpRequest& request);

}  // namespace runnel
