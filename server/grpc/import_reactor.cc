#include "server/grpc/import_reactor.h"

#include <utility>

#include "runnel/v1/sessions.pb.h"
#include "server/calls/import_call.h"
#include "server/grpc/convert.h"
#include "server/grpc/stream_reactor.h"

namespace runnel {
namespace {

using ImportBase = StreamReactor<grpc::ServerReadReactor<grpc::ByteBuffer>, ImportCall, ImportSink>;

class ImportReactor final : public ImportBase {
 public:
  ImportReactor(ServerContext& state, grpc::CallbackServerContext& context,
                grpc::ByteBuffer& response)
      : ImportBase("ImportSession", state, context), response_(response) {}

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

 private:
  // Gives the message that was read to the call.
  Status take() {
    count_received(bytes_);
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
    auto model = call_->find_model(target.model());
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
    name_session(session.key.id);
    response_ = serialize_message(session_message(session, *call_->opened()));
    count_sent(response_);
  }

  grpc::ByteBuffer& response_;
  grpc::ByteBuffer bytes_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* start_import(ServerContext& state,
                                                        grpc::CallbackServerContext& context,
                                                        grpc::ByteBuffer& response) {
  auto* const reactor = new ImportReactor(state, context, response);  // deletes itself
  reactor->start();
  return reactor;
}

}  // namespace runnel
