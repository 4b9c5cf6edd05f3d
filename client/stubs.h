// The stubs of connections (client/connections.h), for the files that make calls on them.
#pragma once

#include <memory>
#include <vector>

#include "client/connections.h"
#include "runnel/v1/inference.grpc.pb.h"

namespace runnel {

struct Stubs {
  std::vector<std::unique_ptr<v1::Inference::Stub>> inference;  // one for each connection
};

}  // namespace runnel
