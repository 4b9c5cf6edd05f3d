// The ExportSession RPC over gRPC: passes a call to server/calls/export_call.h, and its pieces to
// the client.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/host/server_context.h"

namespace runnel {

// Starts the call. The reactor deletes itself. `state` must outlive it.
grpc::ServerWriteReactor<grpc::ByteBuffer>* start_export(ServerContext& state,
                                                         grpc::CallbackServerContext& context,
                                                         const grpc::ByteBuffer& request);

}  // namespace runnel
