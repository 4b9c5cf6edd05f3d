// The ImportSession RPC over gRPC: passes the messages of a call to server/calls/import_call.h.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/host/server_context.h"

namespace runnel {

// Starts the call. The reactor deletes itself. `state` must outlive it. gRPC owns `response`.
grpc::ServerReadReactor<grpc::ByteBuffer>* start_import(ServerContext& state,
                                                        grpc::CallbackServerContext& context,
                                                        grpc::ByteBuffer& response);

}  // namespace runnel
