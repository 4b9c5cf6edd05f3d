// One unary call, from its request until the client has received the answer. Until then, the
// answer's memory counts against the server's memory. A client that does not read the answer is cut
// off.
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
  // Starts a live call of method `rpc`. `begin`, or a callback that it stores, answers it. If
  // `begin` returns a status that is not OK, this status is the answer. Other answers:
  // UNAUTHENTICATED without calling `begin`, and RESOURCE_EXHAUSTED if there is no memory. `state`
  // must outlive the call. gRPC owns `context`, `request` and `response`.
  static grpc::ServerUnaryReactor* start(const char* rpc, ServerContext& state,
                                         grpc::CallbackServerContext& context,
                                         const grpc::ByteBuffer& request,
                                         grpc::ByteBuffer& response,
                                         const std::function<Status(UnaryCall&)>& begin);

  // The request as a message. INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  template <typename Message>
  Result<Message> parse() {
    if (Status s = reserve(memory_for(request_)); !s.ok()) return s;
    return parse_message<Message>(request_);
  }

  // Names the session of the answer in the initial metadata. To be called before answer().
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
  std::optional<TimePoint>
      answered_;  // with mutex_ held; set until the client has received the answer
};

}  // namespace runnel
