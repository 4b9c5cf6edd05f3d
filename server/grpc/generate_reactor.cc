#include "server/grpc/generate_reactor.h"

#include <string>
#include <utility>
#include <variant>

#include "runnel/v1/inference.pb.h"
#include "server/calls/generate_call.h"
#include "server/grpc/conversation.h"
#include "server/grpc/convert.h"
#include "server/grpc/stream_reactor.h"

namespace runnel {
namespace {

using GenerateBase =
    StreamReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>, GenerateCall, GenerateSink>;

class GenerateReactor final : public GenerateBase {
 public:
  using GenerateBase::GenerateBase;

  void start(const grpc::ByteBuffer& bytes) {
    start_aside_with<v1::GenerateRequest>(
        bytes, [&state = state_, call = call_, session = session_](const auto& message) {
          return begin(state, *call, message, *session);
        });
  }
  void OnWriteDone(bool ok) override { call_->written(ok); }

 private:
  static Status begin(ServerContext& state, GenerateCall& call, const v1::GenerateRequest& message,
                      std::string& session) {
    auto model = call.find_model(message.model());
    if (!model.ok()) return model.status();
    auto request = request_of(message, state.text_input(**model, message.model()), state.delivery);
    if (!request.ok()) return request.status();
    if (message.has_conversation()) {
      if (Status s = set_conversation(message, **model, state, *request); !s.ok()) return s;
    }
    if (!message.has_max_queue_time()) request->max_queue_time = state.queue_time;
    session = request->session.value_or("");
    TokenUse use = {.wanted = message.include_state()};
    if (message.origin().has_token()) use.given = message.origin().token();
    if (use.any()) {
      call.start_with_token(std::move(*model), std::move(*request), use);
      return {};
    }
    call.start(std::move(*model), std::move(*request));
    return {};
  }

  void write(const GenerateEvent& event) override {
    if (!std::exchange(headed_, true)) {
      const auto* const started = std::get_if<Started>(&event);
      const bool kept = started != nullptr && !started->session.empty();
      name_session(kept ? started->session : *session_);
    }
    v1::GenerateResponse message;  // destroyed before the client has read its text
    encode(event, message);
    if (message.has_finished() && !token_.empty()) {
      message.mutable_finished()->set_token(std::exchange(token_, ""));
    }
    bytes_ = serialize_message(message);
    count_sent(bytes_);
    StartWrite(&bytes_);
  }

  void take_token(std::string token) override { token_ = std::move(token); }

  std::string token_;  // until Finished
  // The name of the session that the call continues; empty for a call without a session. Set before
  // the call starts.
  const std::shared_ptr<std::string> session_ = std::make_shared<std::string>();
  bool headed_ = false;     // the initial metadata has been made
  grpc::ByteBuffer bytes_;  // being written
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* start_generate(ServerContext& state,
                                                           grpc::CallbackServerContext& context,
                                                           const grpc::ByteBuffer& request) {
  auto* const reactor = new GenerateReactor("Generate", state, context);  // deletes itself
  reactor->start(request);
  return reactor;
}

}  // namespace runnel
