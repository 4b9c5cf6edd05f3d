#include "server/grpc/export_reactor.h"

#include <string>
#include <utility>

#include "base/fields.h"
#include "runnel/v1/sessions.pb.h"
#include "server/calls/export_call.h"
#include "server/grpc/convert.h"
#include "server/grpc/stream_reactor.h"

namespace runnel {
namespace {

using ExportBase =
    StreamReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>, ExportCall, ExportSink>;

class ExportReactor final : public ExportBase {
 public:
  using ExportBase::ExportBase;

  void start(const grpc::ByteBuffer& bytes) {
    start_with<v1::ExportSessionRequest>(bytes, [this](const auto& message) -> Status {
      auto model = call_->find_model(message.model());
      if (!model.ok()) return model.status();
      const auto lasts = duration_of(message.expires_in(), fields::kExpiresIn);
      if (!lasts.ok()) return lasts.status();
      ExportTerms terms = {.any_owner = message.any_owner()};
      if (message.has_expires_in()) terms.expires_in = *lasts;
      session_ = message.id();
      call_->start(std::move(*model), message.id(), terms);
      return {};
    });
  }
  void OnWriteDone(bool ok) override { call_->written(ok); }

 private:
  void write(std::string piece) override {
    name_session(std::exchange(session_, ""));
    bytes_ = bytes_message(v1::ExportSessionResponse::kDataFieldNumber, std::move(piece));
    count_sent(bytes_);
    StartWrite(&bytes_);
  }

  std::string session_;     // until the first message
  grpc::ByteBuffer bytes_;  // being written
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* start_export(ServerContext& state,
                                                         grpc::CallbackServerContext& context,
                                                         const grpc::ByteBuffer& request) {
  auto* const reactor = new ExportReactor("ExportSession", state, context);  // deletes itself
  reactor->start(request);
  return reactor;
}

}  // namespace runnel
