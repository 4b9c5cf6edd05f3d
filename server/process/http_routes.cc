#include "server/process/http_routes.h"

#include <algorithm>
#include <iterator>
#include <set>
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
  std::string_view (*description)();  // its openapi.json
};

constexpr HttpDoor kDoors[] = {{openai_routes, openai_description},
                               {rest_routes, rest_description}};

HttpRoute description_route(ServerContext& state, const Gate& gate) {
  std::vector<std::string_view> doors;
  for (const HttpDoor& door : kDoors) doors.push_back(door.description());
  const auto handle = [text = joined_description(doors)](const HttpRequest&, HttpReply reply) {
    reply.send({200, "application/json", text});
  };
  return {"GET", "/openapi.json", gate.guard(count_requests(state, "openai.openapi", handle))};
}

}  // namespace

std::vector<HttpRoute> http_routes(ServerContext& state, const Gate& gate) {
  std::vector<HttpRoute> routes;
  for (const HttpDoor& door : kDoors) {
    std::ranges::move(door.routes(state, gate), std::back_inserter(routes));
  }
  routes.push_back(description_route(state, gate));
  std::set<std::string> paths;
  for (const HttpRoute& route : routes) paths.insert(route.path);
  for (const std::string& path : paths) {
    routes.push_back(
        {"OPTIONS", path, gate.guard(count_requests(state, "http.options", Gate::preflight))});
  }
  std::ranges::move(page_routes(gate), std::back_inserter(routes));
  return routes;
}

void report_refusal(ServerContext& state, const HttpRefusal& refusal) {
  const CallOrigin origin = {
      .rpc = "http.refused", .peer = std::string(refusal.peer), .caller = Caller()};
  report(state, origin, nullptr, {}, Status(code_of_http(refusal.status), refusal.message));
}

}  // namespace runnel
