// The ImportSession RPC over gRPC: hands the messages of a call to server/calls/import_call.h.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/host/server_context.h"

namespace runnel {

// Starts the call; the reactor deletes itself. `state` outlives it, `response` is gRPC's.
grpc::ServerReadReactor<grpc::ByteBuffer>* start_import(ServerContext& state,
                                                        grpc::CallbackServerContext& context,
                                                        grpc::ByteBuffer& response);

}  // namespace runnel
