// Opens a gRPC channel to a server. For the files that make calls: others include client/client.h.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "client/access.h"

namespace runnel {

// A channel, with the key on each of its calls. Nothing is connected yet.
std::shared_ptr<grpc::Channel> open_channel(const Access& access, grpc::ChannelArguments arguments);

}  // namespace runnel
