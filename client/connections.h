// Several connections to one server, for what measures it: calls on one connection share its window
// and its limit of streams.
#pragma once

#include <memory>

#include "base/status.h"
#include "client/access.h"

namespace runnel {

// A stub for each connection (client/stubs.h).
struct Stubs;

// Opens `count` connections, which no other channel of the process shares. UNAVAILABLE when the
// server does not take all of them within 10 s.
Result<std::shared_ptr<const Stubs>> connect_times(const Access& access, int count);

}  // namespace runnel
