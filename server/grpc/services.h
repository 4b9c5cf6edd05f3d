// The services of the wire contract. They take bytes (see wire.h); what they do is in the
// reactors and in the engine.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/server_state.h"

namespace runnel {

// Each answers on gRPC's threads and never blocks one; `state` outlives it.
std::unique_ptr<grpc::Service> make_inference_service(ServerState& state);
std::unique_ptr<grpc::Service> make_session_service(ServerState& state);
std::unique_ptr<grpc::Service> make_model_service(ServerState& state);
std::unique_ptr<grpc::Service> make_admin_service(ServerState& state);

}  // namespace runnel
