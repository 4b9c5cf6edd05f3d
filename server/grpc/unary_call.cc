#include "server/grpc/unary_call.h"

#include "base/within_memory.h"
#include "runnel/v1/sessions.pb.h"

namespace runnel {

grpc::ServerUnaryReactor* UnaryCall::start(const char* rpc, ServerContext& state,
                                           grpc::CallbackServerContext& context,
                                           const grpc::ByteBuffer& request,
                                           grpc::ByteBuffer& response,
                                           const std::function<Status(UnaryCall&)>& begin) {
  const std::shared_ptr<UnaryCall> call(new UnaryCall(rpc, state, context, request, response));
  state.calls.enter(call);
  state.metrics.received.add(length_of(request));
  const Status status = within_memory(
      [&] { return call->start_.caller.ok() ? begin(*call) : call->start_.caller.status(); });
  if (!status.ok()) call->refuse(status);
  return call.get();  // lives until OnDone()
}

// Called when the response is complete: sends it to the client, and reports the call.
void UnaryCall::finish(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    answered_ = state_.clock.now();
  }
  const grpc::Status end = to_grpc(status);
  add_pushback(status, context_);
  state_.metrics.sent.add(length_of(response_));
  report(state_, start_, model_.get(), {}, status);
  Finish(end);
}

void UnaryCall::refuse(const Status& status) {
  const Status refused = within_memory([&] {
    answer(Result<v1::Session>(status));
    return Status();
  });
  // Nothing else ends the call, so it must get an answer even if there is no memory for a message.
  if (refused.ok()) return;
  report(state_, start_, model_.get(), {}, refused);
  Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, {}});
}

void UnaryCall::OnDone() {
  {
    std::lock_guard lock(mutex_);
    answered_.reset();
  }
  state_.calls.leave(shared_from_this());
}

void UnaryCall::tend(TimePoint now) {
  std::lock_guard lock(mutex_);
  if (answered_ && now - *answered_ >= 2 * state_.stall_timeout) context_.TryCancel();
}

}  // namespace runnel
