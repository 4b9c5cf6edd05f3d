#include "client/channel.h"

#include <grpcpp/support/client_interceptor.h>

#include <utility>
#include <vector>

namespace runnel {
namespace {

using grpc::experimental::InterceptionHookPoints;

// Adds the key to a call.
class KeyBearer final : public grpc::experimental::Interceptor {
 public:
  explicit KeyBearer(const std::string& bearer) : bearer_(bearer) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", bearer_);
    }
    methods->Proceed();
  }

 private:
  const std::string& bearer_;
};

class KeyBearerFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit KeyBearerFactory(const std::string& key) : bearer_("Bearer " + key) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new KeyBearer(bearer_);  // gRPC owns it from here on
  }

 private:
  const std::string bearer_;
};

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const Access& access,
                                            grpc::ChannelArguments arguments) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (access.tls) {
    credentials = grpc::SslCredentials({.pem_root_certs = access.authorities,
                                        .pem_private_key = access.identity.key,
                                        .pem_cert_chain = access.identity.certificate});
    if (!access.name.empty()) arguments.SetSslTargetNameOverride(access.name);
  }
  if (access.key.empty()) return grpc::CreateCustomChannel(access.address, credentials, arguments);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> bearers;
  bearers.push_back(std::make_unique<KeyBearerFactory>(access.key));
  return grpc::experimental::CreateCustomChannelWithInterceptors(access.address, credentials,
                                                                 arguments, std::move(bearers));
}

}  // namespace runnel
