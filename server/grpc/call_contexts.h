// Counts the calls that gRPC has accepted, from the moment a stream is there.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>

namespace runnel {

// gRPC asks for a context on the thread that reads the stream's first bytes, long before a reactor
// runs, and gives it back when it has let go of the call. A stream that its client has reset no
// longer counts against the connection's limit of streams, but its context is still there.
class CallContexts final : public grpc::ContextAllocator {
 public:
  // The count outlives every allocator that it is given to.
  explicit CallContexts(std::atomic<int64_t>& count) : count_(count) {}

  grpc::CallbackServerContext* NewCallbackServerContext() override;
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override;
  void Release(grpc::CallbackServerContext* context) override;
  void Release(grpc::GenericCallbackServerContext* context) override;

 private:
  std::atomic<int64_t>& count_;
};

}  // namespace runnel
