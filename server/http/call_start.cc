#include "server/http/call_start.h"

#include <span>
#include <string>
#include <string_view>

#include "server/calls/trace_context.h"

namespace runnel {

Result<Caller> caller_of(const ServerContext& state, const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization");
  const std::span<const std::string_view> shown(&authorization, authorization.empty() ? 0 : 1);
  return state.callers.identify(shown, std::string(request.peer));
}

CallStart call_start(const char* rpc, const ServerContext& state, const HttpRequest& request) {
  return {.rpc = rpc,
          .peer = std::string(request.peer),
          .caller = caller_of(state, request),
          .trace_id = trace_id_of(request.header("traceparent")),
          .came = state.clock.now()};
}

}  // namespace runnel
