#include "server/grpc/import_reactor.h"

#include <utility>

#include "base/within_memory.h"
#include "runnel/v1/sessions.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/wire.h"
#include "server/import_call.h"

namespace runnel {
namespace {

class ImportReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer>, private ImportSink {
 public:
  ImportReactor(ServerState& state, grpc::CallbackServerContext& context,
                grpc::ByteBuffer& response)
      : state_(state),
        context_(context),
        response_(response),
        call_(ImportCall::make(state, origin_of("ImportSession", state, context), *this)) {}

  void start() {
    call_->enter();
    call_->start();
  }

  void OnReadDone(bool ok) override {
    if (!call_->arrived()) return;
    const Status status = within_memory([&] { return ok ? take() : close(); });
    if (!status.ok()) return call_->refuse(status);
    bytes_.Clear();
    if (ok) call_->go_on();
  }
  void OnCancel() override { call_->cancel(); }
  void OnDone() override {
    call_->leave();
    delete this;
  }

 private:
  // The message that was read goes to the call.
  Status take() {
    state_.metrics.received.add(length_of(bytes_));
    if (Status s = call_->reserve(memory_for(bytes_)); !s.ok()) return s;
    const bool opened = call_->opened() != nullptr;
    const auto pieces = bytes_of_message(bytes_, v1::ImportSessionRequest::kDataFieldNumber);
    if (opened && !pieces.empty()) return add(pieces);
    const auto message = parse_message<v1::ImportSessionRequest>(bytes_);
    if (!message.ok()) return message.status();
    if (message->has_target() == opened) {
      return invalid_argument(opened ? "target is set again; only the first message has one"
                                     : "the first message has no target; it says what the session "
                                       "is to be, and the others bring data");
    }
    if (message->has_target()) return open(message->target());
    if (message->data().empty()) {
      return invalid_argument("the message has neither target nor data; each brings some");
    }
    return call_->add(std::as_bytes(std::span(message->data())));
  }

  Status open(const v1::ImportTarget& target) {
    auto model = state_.models.find(call_->caller(), target.model());
    if (!model.ok()) return model.status();
    return call_->open(std::move(*model), target.id(), target.allow_inexact());
  }

  Status add(std::span<const grpc::Slice> pieces) {
    for (const grpc::Slice& piece : pieces) {
      if (Status s = call_->add(std::as_bytes(std::span(piece.begin(), piece.end()))); !s.ok()) {
        return s;
      }
    }
    return {};
  }

  Status close() {
    call_->close();
    return {};
  }

  void read() override { StartRead(&bytes_); }
  void answer(const SessionInfo& session) override {
    response_ = serialize_message(session_message(session, *call_->opened()));
    state_.metrics.sent.add(length_of(response_));
  }
  void finish(const Status& status) override {
    add_pushback(status, context_);
    Finish(to_grpc(status));
  }
  void cut_off() override { context_.TryCancel(); }

  ServerState& state_;
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer& response_;
  grpc::ByteBuffer bytes_;
  const std::shared_ptr<ImportCall> call_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* start_import(ServerState& state,
                                                        grpc::CallbackServerContext& context,
                                                        grpc::ByteBuffer& response) {
  auto* const reactor = new ImportReactor(state, context, response);  // deletes itself
  reactor->start();
  return reactor;
}

}  // namespace runnel
