// One Score call over gRPC: for each chunk of values it sends the log-probabilities, and at the end
// the total.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/host/server_context.h"

namespace runnel {

// Starts a call. The reactor deletes itself after the call, and never blocks. `state` must outlive
// it.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* start_score(
    ServerContext& state, grpc::CallbackServerContext& context);

}  // namespace runnel
