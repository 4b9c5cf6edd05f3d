// One unary call, from its request until the client has its answer. The answer's memory counts
// against the server's until then, and a client that does not take it is cut off.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "server/calls/answered_call.h"
#include "server/calls/session_header.h"
#include "server/grpc/wire.h"
#include "server/host/server_context.h"

namespace runnel {

class UnaryCall final : public grpc::ServerUnaryReactor, public AnsweredCall {
 public:
  // A live call of method `rpc`, answered by `begin` or by a callback that it leaves; what is not
  // OK is the answer, and so are UNAUTHENTICATED, before `begin`, and RESOURCE_EXHAUSTED where
  // memory gives out. `state` outlives the call, `context`, `request` and `response` are gRPC's.
  static grpc::ServerUnaryReactor* start(const char* rpc, ServerContext& state,
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

  // Names the session that the answer is about in the initial metadata; before answer().
  void name_session(const std::string& id) { context_.AddInitialMetadata(kSessionHeader, id); }

  // Answers with a message or a refusal, once.
  template <typename Message>
  void answer(const Result<Message>& outcome) {
    if (outcome.ok()) response_ = serialize_message(*outcome);
    finish(outcome.status());
  }

  void OnDone() override;

  // --- LiveCall ---

  void tend(TimePoint now) override;

 private:
  UnaryCall(const char* rpc, ServerContext& state, grpc::CallbackServerContext& context,
            const grpc::ByteBuffer& request, grpc::ByteBuffer& response)
      : AnsweredCall(state, call_start(rpc, state, context)),
        context_(context),
        request_(request),
        response_(response) {}
  void finish(const Status& status);
  void refuse(const Status& status) override;

  grpc::CallbackServerContext& context_;
  const grpc::ByteBuffer& request_;
  grpc::ByteBuffer& response_;
  std::mutex mutex_;
  std::optional<TimePoint> answered_;  // with mutex_ held: the client has yet to take the answer
};

}  // namespace runnel
