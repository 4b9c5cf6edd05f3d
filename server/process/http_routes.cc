#include "server/process/http_routes.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "server/calls/call_report.h"
#include "server/http/short_call.h"
#include "server/openai/description.h"
#include "server/openai/routes.h"
#include "server/process/description.h"
#include "server/rest/description.h"
#include "server/rest/routes.h"
#include "server/web/page.h"

namespace runnel {
namespace {

struct HttpDoor {
  std::vector<HttpRoute> (*routes)(ServerContext& state, const Gate& gate);
  std::string_view (*description)();  // its openapi.json file
};

constexpr HttpDoor kDoors[] = {{openai_routes, openai_description},
                               {rest_routes, rest_description}};

}  // namespace

std::string openapi_json(const ServerContext& state) {
  std::vector<std::string_view> doors;
  for (const HttpDoor& door : kDoors) doors.push_back(door.description());
  return joined_description(doors, state);
}

std::vector<HttpRoute> http_routes(ServerContext& state, const Gate& gate) {
  std::vector<HttpRoute> routes;
  for (const HttpDoor& door : kDoors) {
    std::ranges::move(door.routes(state, gate), std::back_inserter(routes));
  }
  routes.push_back(
      {"GET", "/openapi.json",
       gate.guard(count_requests(state, "openai.openapi",
                                 [text = openapi_json(state)](const HttpRequest&, HttpReply reply) {
                                   reply.send({200, "application/json", text});
                                 }))});
  std::ranges::move(page_routes(gate), std::back_inserter(routes));
  routes.push_back(
      {"OPTIONS", "**", gate.guard(count_requests(state, "http.options", Gate::preflight))});
  return routes;
}

void report_refusal(ServerContext& state, const HttpRefusal& refusal) {
  const CallStart start = {.rpc = "http.refused",
                           .peer = std::string(refusal.peer),
                           .caller = Caller(),
                           .came = state.clock.now()};
  report(state, start, nullptr, {}, Status(code_of_http(refusal.status), refusal.message));
}

}  // namespace runnel
