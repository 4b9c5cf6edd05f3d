// TLS for the connections of a gRPC server.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/net/server_certificate.h"

namespace runnel {

// Each handshake uses the certificate that is current at that time; open connections continue. If
// the server requires client certificates, clients must have one. `certificate` must be loaded, and
// must outlive the credentials. The credentials must outlive the server that is built with them.
std::shared_ptr<grpc::ServerCredentials> tls_credentials(const ServerCertificate& certificate);

}  // namespace runnel
