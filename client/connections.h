// Several connections to one server, for load tests: calls on one connection share its flow-control
// window and its limit of streams.
#pragma once

#include <memory>

#include "base/status.h"
#include "client/access.h"

namespace runnel {

// A stub for each connection (client/stubs.h).
struct Stubs;

// Opens `count` connections. No other channel of the process shares them. UNAVAILABLE if the server
// does not accept all of them within 10 s.
Result<std::shared_ptr<const Stubs>> connect_times(const Access& access, int count);

}  // namespace runnel
