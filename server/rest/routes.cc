#include "server/rest/routes.h"

#include <algorithm>
#include <iterator>

#include "server/rest/server_status.h"
#include "server/rest/sessions.h"
#include "server/rest/tokenize.h"

namespace runnel {

std::vector<HttpRoute> rest_routes(ServerContext& state, const Gate& gate) {
  std::vector<HttpRoute> routes;
  for (const auto part : {server_status_routes, session_routes, tokenize_routes}) {
    std::ranges::move(part(state, gate), std::back_inserter(routes));
  }
  return routes;
}

}  // namespace runnel
