#include "server/process/http_routes.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "server/calls/call_report.h"
#include "server/http/short_call.h"
#include "server/openai/routes.h"
#include "server/rest/server_status.h"
#include "server/rest/sessions.h"
#include "server/rest/tokenize.h"
#include "server/web/page.h"

namespace runnel {

std::vector<HttpRoute> http_routes(ServerContext& state, const Gate& gate) {
  std::vector<HttpRoute> routes;
  for (const auto door : {openai_routes, server_status_routes, session_routes, tokenize_routes}) {
    std::ranges::move(door(state, gate), std::back_inserter(routes));
  }
  std::ranges::move(page_routes(gate), std::back_inserter(routes));
  routes.push_back(
      {"OPTIONS", "**", gate.guard(count_requests(state, "http.options", Gate::preflight))});
  return routes;
}

void report_refusal(ServerContext& state, const HttpRefusal& refusal) {
  const CallOrigin origin = {
      .rpc = "http.refused", .peer = std::string(refusal.peer), .caller = Caller()};
  report(state, origin, nullptr, {}, Status(code_of_http(refusal.status), refusal.message));
}

}  // namespace runnel
