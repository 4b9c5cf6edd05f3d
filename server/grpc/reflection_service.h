// Server reflection, which lists the services and messages of the server.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "server/host/server_context.h"

namespace runnel {

// Answers grpc.reflection.v1alpha from the protobuf descriptors that are linked into the program,
// and lists the names in `services`. gRPC's own reflection service runs a thread for each call and
// bypasses grpc::ContextAllocator, so a flood of its calls would not be counted. `state` must
// outlive it.
std::unique_ptr<grpc::Service> make_reflection_service(ServerContext& state,
                                                       std::vector<std::string> services);

}  // namespace runnel
