// Explains why a TLS handshake failed. gRPC itself reports only that it failed.
#pragma once

#include <chrono>

#include "base/status.h"
#include "client/access.h"

namespace runnel {

// Both functions take a connected, blocking socket. The caller has limited each read and write of
// it to `at_most`. No read begins after `at_most`, even if the peer sends a byte now and then, so a
// handshake ends after about twice that time.

// True if the peer answers a TLS handshake, whatever its certificate is.
bool speaks_tls(int socket, std::chrono::milliseconds at_most);

// Finds why a TLS connection to the server of `access` fails. UNAVAILABLE says what is wrong with
// the server's certificate, or why the server rejected the client's, and what to do.
Status explain_handshake(int socket, const Access& access, std::chrono::milliseconds at_most);

}  // namespace runnel
