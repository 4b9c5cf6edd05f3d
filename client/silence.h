// Explains why calls do not reach a server.
#pragma once

#include <chrono>

#include "base/status.h"
#include "client/access.h"

namespace runnel {

// Opens one test connection, in which no step takes longer than `at_most`. Says on one line what it
// found and what to do:
// - UNAVAILABLE if nothing listens, the host is unknown, another protocol answers, or one side
//   rejects the other's certificate;
// - DEADLINE_EXCEEDED if the peer has not answered.
// `refused`: gRPC gave up by itself, before its deadline. `after`: how long gRPC has tried, for the
// message.
Status explain_silence(const Access& access, bool refused, std::chrono::duration<double> after,
                       std::chrono::milliseconds at_most);

}  // namespace runnel
