// Counts the calls that gRPC has accepted, from the moment at which a stream exists.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>

namespace runnel {

// gRPC allocates a context on the thread that reads a stream's first bytes, long before a reactor
// runs, and releases it when it releases the call. A stream that its client has reset no longer
// counts against the connection's limit of streams, but its context still exists.
class CallContexts final : public grpc::ContextAllocator {
 public:
  // `count` must outlive the object.
  explicit CallContexts(std::atomic<int64_t>& count) : count_(count) {}

  grpc::CallbackServerContext* NewCallbackServerContext() override;
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override;
  void Release(grpc::CallbackServerContext* context) override;
  void Release(grpc::GenericCallbackServerContext* context) override;

 private:
  std::atomic<int64_t>& count_;
};

}  // namespace runnel
