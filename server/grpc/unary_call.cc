#include "server/grpc/unary_call.h"

#include "runnel/v1/sessions.pb.h"

namespace runnel {

grpc::ServerUnaryReactor* UnaryCall::start(ServerState& state, grpc::CallbackServerContext& context,
                                           const grpc::ByteBuffer& request,
                                           grpc::ByteBuffer& response,
                                           const std::function<Status(UnaryCall&)>& begin) {
  const std::shared_ptr<UnaryCall> call(new UnaryCall(state, context, request, response));
  state.calls.enter(call);
  const Status status =
      within_memory([&] { return call->caller_.ok() ? begin(*call) : call->caller_.status(); });
  if (!status.ok()) call->answer(Result<v1::Session>(status));
  return call.get();  // lives until OnDone()
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
