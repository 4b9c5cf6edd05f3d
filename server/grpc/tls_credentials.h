// TLS for the connections of a gRPC server.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/net/server_certificate.h"

namespace runnel {

// Each handshake takes the certificate that is current then; open connections continue.
// Clients must have one, too, where the server asks for it. `certificate` is loaded, and outlives
// the credentials; they outlive the server that is built with them.
std::shared_ptr<grpc::ServerCredentials> tls_credentials(const ServerCertificate& certificate);

}  // namespace runnel
