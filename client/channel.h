// Opens a gRPC channel to a server. Only files that make calls include this header. All other files
// include client/client.h.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "client/access.h"

namespace runnel {

// A channel that sends the key with each call. It does not connect yet.
std::shared_ptr<grpc::Channel> open_channel(const Access& access, grpc::ChannelArguments arguments);

}  // namespace runnel
