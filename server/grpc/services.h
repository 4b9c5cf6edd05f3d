// The services of the wire contract. They take bytes (see wire.h); what they do is in the
// reactors and in the engine.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/host/server_context.h"

namespace runnel {

// Each answers on gRPC's threads and never blocks one; `state` outlives it.
std::unique_ptr<grpc::Service> make_inference_service(ServerContext& state);
std::unique_ptr<grpc::Service> make_session_service(ServerContext& state);
std::unique_ptr<grpc::Service> make_model_service(ServerContext& state);
std::unique_ptr<grpc::Service> make_admin_service(ServerContext& state);

}  // namespace runnel
