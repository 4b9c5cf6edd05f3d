#include "server/grpc/unary_call.h"

#include "base/within_memory.h"
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
  if (!status.ok()) call->refuse(status);
  return call.get();  // lives until OnDone()
}

void UnaryCall::refuse(const Status& status) {
  const Status refused = within_memory([&] {
    answer(Result<v1::Session>(status));
    return Status();
  });
  // Nothing else ends the call: it must have an answer, if without a word.
  if (!refused.ok()) Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, {}});
}

void UnaryCall::run_later() {
  const auto later = std::exchange(later_, nullptr);
  const Status status = within_memory([&] {
    later();
    return Status();
  });
  if (!status.ok()) refuse(status);
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
