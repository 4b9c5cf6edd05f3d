#include "server/grpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>
#include <utility>

#include "base/check.h"

namespace runnel {
namespace {

// Credentials that ask for the certificate at each handshake. The library has them, but not in its
// C++ interface. (The provider that it offers instead watches files, and drops the old certificate
// before it finds that the new one is unusable.)
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  explicit TlsCredentials(const ServerCertificate& certificate)
      : certificate_(certificate),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                certificate_.asks_clients()
                    ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                &TlsCredentials::fetch, this))) {}
  ~TlsCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    check(false, "nobody sets a processor of metadata");
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Called for one handshake at a time.
  static grpc_ssl_certificate_config_reload_status fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& credentials = *static_cast<TlsCredentials*>(self);
    auto current = credentials.certificate_.current();
    if (current == credentials.given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {.private_key = current->identity.key.c_str(),
                                             .cert_chain = current->identity.certificate.c_str()};
    // The library needs authorities here even if it asks no client for a certificate.
    const std::string& authorities = credentials.certificate_.asks_clients()
                                         ? current->client_authorities
                                         : current->identity.certificate;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    credentials.given_ = std::move(current);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const ServerCertificate& certificate_;
  std::shared_ptr<const ServerCertificate::Contents> given_;  // the last one given to the library
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> tls_credentials(const ServerCertificate& certificate) {
  return std::make_shared<TlsCredentials>(certificate);
}

}  // namespace runnel
