#include "server/grpc/export_reactor.h"

#include <utility>

#include "base/within_memory.h"
#include "runnel/v1/sessions.pb.h"
#include "server/export_call.h"
#include "server/grpc/wire.h"

namespace runnel {
namespace {

class ExportReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, private ExportSink {
 public:
  ExportReactor(ServerState& state, grpc::CallbackServerContext& context)
      : state_(state),
        context_(context),
        call_(ExportCall::make(state, origin_of("ExportSession", state, context), *this)) {}

  void start(const grpc::ByteBuffer& bytes) {
    call_->enter();
    state_.metrics.received.add(length_of(bytes));
    const Status status = within_memory([&] { return submit(bytes); });
    if (!status.ok()) call_->refuse(status);
  }

  void OnWriteDone(bool ok) override { call_->written(ok); }
  void OnCancel() override { call_->cancel(); }
  void OnDone() override {
    call_->leave();
    delete this;
  }

 private:
  Status submit(const grpc::ByteBuffer& bytes) {
    if (Status s = call_->admit(); !s.ok()) return s;
    const auto room = state_.memory.take(memory_for(bytes));
    if (!room.ok()) return room.status();
    const auto message = parse_message<v1::ExportSessionRequest>(bytes);
    if (!message.ok()) return message.status();
    auto model = state_.models.find(call_->caller(), message->model());
    if (!model.ok()) return model.status();
    call_->start(std::move(*model), message->id());
    return {};
  }

  void write(std::string piece) override {
    bytes_ = bytes_message(v1::ExportSessionResponse::kDataFieldNumber, std::move(piece));
    state_.metrics.sent.add(length_of(bytes_));
    StartWrite(&bytes_);
  }
  void finish(const Status& status) override {
    add_pushback(status, context_);
    Finish(to_grpc(status));
  }
  void cut_off() override { context_.TryCancel(); }

  ServerState& state_;
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer bytes_;  // being written
  const std::shared_ptr<ExportCall> call_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* start_export(ServerState& state,
                                                         grpc::CallbackServerContext& context,
                                                         const grpc::ByteBuffer& request) {
  auto* const reactor = new ExportReactor(state, context);  // deletes itself
  reactor->start(request);
  return reactor;
}

}  // namespace runnel
