// One Score call: a chunk of values in, their log-probabilities out, and so on; the total last.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/host/server_context.h"

namespace runnel {

// Starts a call. The reactor owns itself until the call is over, and never blocks; `state` outlives
// it.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* start_score(
    ServerContext& state, grpc::CallbackServerContext& context);

}  // namespace runnel
