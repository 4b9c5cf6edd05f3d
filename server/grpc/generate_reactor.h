// One Generate call: pulls groups from its token stream and writes them, one message at a time.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/host/server_context.h"

namespace runnel {

// Starts the call that `request` asks for. The reactor deletes itself when the call is over, and
// never blocks. `state` must outlive it.
grpc::ServerWriteReactor<grpc::ByteBuffer>* start_generate(ServerContext& state,
                                                           grpc::CallbackServerContext& context,
                                                           const grpc::ByteBuffer& request);

}  // namespace runnel
