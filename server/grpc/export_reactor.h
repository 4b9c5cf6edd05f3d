// The ExportSession RPC over gRPC: hands a call to server/calls/export_call.h and its pieces to the
// wire.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/host/server_context.h"

namespace runnel {

// Starts the call; the reactor deletes itself. `state` outlives it.
grpc::ServerWriteReactor<grpc::ByteBuffer>* start_export(ServerContext& state,
                                                         grpc::CallbackServerContext& context,
                                                         const grpc::ByteBuffer& request);

}  // namespace runnel
