// The services of the wire contract. They receive bytes (see wire.h), and the reactors and the
// engine do the work.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/host/server_context.h"

namespace runnel {

// Each service answers on gRPC's threads, and never blocks one. `state` must outlive it.
std::unique_ptr<grpc::Service> make_inference_service(ServerContext& state);
std::unique_ptr<grpc::Service> make_session_service(ServerContext& state);
std::unique_ptr<grpc::Service> make_model_service(ServerContext& state);
std::unique_ptr<grpc::Service> make_admin_service(ServerContext& state);

}  // namespace runnel
