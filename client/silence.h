// Why no call reaches a server.
#pragma once

#include <chrono>

#include "base/status.h"
#include "client/access.h"

namespace runnel {

// Opens one connection, for no longer than `at_most` at each step, and says on one line what it
// found and what to do. UNAVAILABLE when nothing listens, the host is unknown, another protocol
// answers, or one side does not take the other's certificate; DEADLINE_EXCEEDED when the peer has
// not answered `after` seconds. `refused`: gRPC has given up by itself, before its time was over.
Status explain_silence(const Access& access, bool refused, std::chrono::duration<double> after,
                       std::chrono::milliseconds at_most);

}  // namespace runnel
