// All metrics of a server in Prometheus' text format (docs/metrics.md).
#pragma once

#include <cstdint>
#include <string>

#include "server/host/server_context.h"

namespace runnel {

struct ConnectionFigures {
  int64_t open = 0;
  int64_t refused = 0;  // since the start
};

// The present values. Any thread may call this. It takes no lock that a call or a step waits for.
std::string metrics_text(const ServerContext& state, const ConnectionFigures& connections);

}  // namespace runnel
