#include "server/grpc/call_contexts.h"

#include <grpcpp/generic/async_generic_service.h>

namespace runnel {

grpc::CallbackServerContext* CallContexts::NewCallbackServerContext() {
  count_.fetch_add(1, std::memory_order_relaxed);
  return new grpc::CallbackServerContext;
}

grpc::GenericCallbackServerContext* CallContexts::NewGenericCallbackServerContext() {
  count_.fetch_add(1, std::memory_order_relaxed);
  return new grpc::GenericCallbackServerContext;
}

void CallContexts::Release(grpc::CallbackServerContext* context) {
  delete context;
  count_.fetch_sub(1, std::memory_order_relaxed);
}

void CallContexts::Release(grpc::GenericCallbackServerContext* context) {
  delete context;
  count_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace runnel
