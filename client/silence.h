// Explains why calls do not reach a server.
#pragma once

#include <chrono>
#include <functional>

#include "base/status.h"
#include "client/access.h"

namespace runnel {

// Opens one test connection. It tries all addresses of the host within `at_most`; a TLS handshake
// may then take about twice the time that is left. Says on one line what it found and what to do:
// - UNAVAILABLE if nothing listens, the host is unknown, another protocol answers, or one side
//   rejects the other's certificate;
// - DEADLINE_EXCEEDED if the peer has not answered;
// - CANCELLED soon after `stopped` returns true.
// `refused`: gRPC gave up by itself, before its deadline. `after`: how long gRPC has tried, for the
// message.
Status explain_silence(const Access& access, bool refused, std::chrono::duration<double> after,
                       std::chrono::milliseconds at_most, const std::function<bool()>& stopped);

}  // namespace runnel
