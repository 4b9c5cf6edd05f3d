#include "server/grpc/wire.h"

namespace runnel {

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), status.message()};
}

void add_pushback(const Status& status, grpc::CallbackServerContext& context) {
  if (!status.retry_after()) return;
  context.AddTrailingMetadata("grpc-retry-pushback-ms",
                              std::to_string(status.retry_after()->count()));
}

Caller caller_of(const grpc::CallbackServerContext&) { return {}; }

CallOrigin origin_of(const char* rpc, const grpc::CallbackServerContext& context) {
  return {.rpc = rpc, .peer = context.peer(), .caller = caller_of(context)};
}

}  // namespace runnel
