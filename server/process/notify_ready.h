// Tells systemd that the service is ready.
#pragma once

#include "base/status.h"

namespace runnel {

// If the environment has NOTIFY_SOCKET, sends "READY=1" to this socket (sd_notify(3), for a unit of
// type "notify"). The socket is a path, or a name in the abstract namespace that begins with '@'.
// INVALID_ARGUMENT if the name is too long; UNAVAILABLE if nobody reads the socket.
Status notify_ready();

}  // namespace runnel
