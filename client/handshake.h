// Explains why a TLS handshake failed. gRPC itself reports only that it failed.
#pragma once

#include <string>

#include "base/status.h"
#include "client/access.h"

namespace runnel {

// Both functions take a connected, blocking socket that has a time limit of its own.

// True if the peer answers a TLS handshake, whatever its certificate is.
bool speaks_tls(int socket);

// Finds why a TLS connection to the server of `access` fails. UNAVAILABLE says what is wrong with
// the server's certificate, or why the server rejected the client's, and what to do.
Status explain_handshake(int socket, const Access& access);

}  // namespace runnel
