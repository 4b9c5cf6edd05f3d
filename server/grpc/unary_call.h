// One unary call, from its request until the client has its answer. The answer's memory counts
// against the server's until then, and a client that does not take it is cut off.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "server/grpc/wire.h"
#include "server/live_calls.h"
#include "server/server_state.h"

namespace runnel {

class UnaryCall final : public grpc::ServerUnaryReactor,
                        public LiveCall,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  // A live call of method `rpc`, answered by `begin` or by a callback that it leaves; what is not
  // OK is the answer, and so are UNAUTHENTICATED, before `begin`, and RESOURCE_EXHAUSTED where
  // memory gives out. `state` outlives the call, `context`, `request` and `response` are gRPC's.
  static grpc::ServerUnaryReactor* start(const char* rpc, ServerState& state,
                                         grpc::CallbackServerContext& context,
                                         const grpc::ByteBuffer& request,
                                         grpc::ByteBuffer& response,
                                         const std::function<Status(UnaryCall&)>& begin);

  // The request, as a message. INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  template <typename Message>
  Result<Message> parse() {
    if (Status s = reserve(memory_for(request_)); !s.ok()) return s;
    return parse_message<Message>(request_);
  }
  const Caller& caller() const { return *origin_.caller; }
  // ServedModels::find() for the caller. The call is counted with the model that it comes to.
  Result<std::shared_ptr<const ServedModel>> find_model(const std::string& name);

  // Makes room for so many more bytes of memory. RESOURCE_EXHAUSTED.
  Status reserve(int64_t bytes) { return state_.memory.grow(room_, room_.bytes() + bytes); }

  // Answers with a message or a refusal, once.
  template <typename Message>
  void answer(const Result<Message>& outcome) {
    if (outcome.ok()) response_ = serialize_message(*outcome);
    finish(outcome.status());
  }
  // The same on the writer's thread, with what `message_of` makes of an outcome that is OK: the
  // scheduler's thread must not be held up.
  template <typename Outcome, typename MessageOf>
  void answer_later(Result<Outcome> outcome, MessageOf message_of) {
    using Message = std::decay_t<decltype(message_of(std::as_const(*outcome)))>;
    later_ = [this, outcome = std::move(outcome), message_of = std::move(message_of)] {
      answer(outcome.ok() ? Result<Message>(message_of(std::as_const(*outcome)))
                          : Result<Message>(outcome.status()));
    };
    state_.writer.post<&UnaryCall::run_later>(shared_from_this());
  }

  void OnDone() override;

  // --- LiveCall ---

  // It has its answer soon in any case.
  void end(const Status& /*status*/) override {}
  void tend(TimePoint now) override;

 private:
  UnaryCall(const char* rpc, ServerState& state, grpc::CallbackServerContext& context,
            const grpc::ByteBuffer& request, grpc::ByteBuffer& response)
      : state_(state),
        context_(context),
        request_(request),
        response_(response),
        origin_(origin_of(rpc, state, context)) {}
  void finish(const Status& status);
  void refuse(const Status& status);
  void run_later();

  ServerState& state_;
  grpc::CallbackServerContext& context_;
  const grpc::ByteBuffer& request_;
  grpc::ByteBuffer& response_;
  const CallOrigin origin_;
  std::shared_ptr<const ServedModel> model_;  // null before find_model()
  MemoryBudget::Hold room_;
  std::function<void()> later_;
  std::mutex mutex_;
  std::optional<TimePoint> answered_;  // with mutex_ held: the client has yet to take the answer
};

}  // namespace runnel
