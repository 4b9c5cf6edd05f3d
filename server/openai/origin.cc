#include "server/openai/origin.h"

#include <span>
#include <string>
#include <string_view>

#include "server/trace_context.h"

namespace runnel {

CallOrigin origin_of(const char* rpc, const ServerState& state, const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization");
  const std::span<const std::string_view> shown(&authorization, authorization.empty() ? 0 : 1);
  const std::string peer(request.peer);
  return {.rpc = rpc,
          .peer = peer,
          .caller = state.callers.identify(shown, peer),
          .trace_id = trace_id_of(request.header("traceparent"))};
}

}  // namespace runnel
