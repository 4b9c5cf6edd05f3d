// Says in words why a TLS handshake failed. gRPC says only that it did.
#pragma once

#include <string>

#include "base/status.h"
#include "client/access.h"

namespace runnel {

// Both take a socket that is connected, blocking, and has a time limit of its own.

// True when the peer answers a TLS handshake, whatever its certificate.
bool speaks_tls(int socket);

// Why the server that `access` names is not reached by TLS. UNAVAILABLE says what is wrong with its
// certificate, or what it did not like about the client's, and what to do.
Status explain_handshake(int socket, const Access& access);

}  // namespace runnel
