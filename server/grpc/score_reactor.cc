#include "server/grpc/score_reactor.h"

#include <utility>

#include "base/within_memory.h"
#include "engine/refusals.h"
#include "runnel/v1/inference.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/wire.h"
#include "server/scoring_call.h"

namespace runnel {
namespace {

class ScoreReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           private ScoreSink {
 public:
  ScoreReactor(ServerState& state, grpc::CallbackServerContext& context)
      : state_(state),
        context_(context),
        call_(ScoringCall::make(state, origin_of("Score", state, context), *this)) {}

  void start() {
    call_->enter();
    call_->start();
  }

  void OnReadDone(bool ok) override {
    if (!call_->arrived()) return;
    if (!ok) return call_->close();
    if (Status s = within_memory([this] { return feed(); }); !s.ok()) call_->refuse(s);
  }
  void OnWriteDone(bool ok) override { call_->written(ok); }
  void OnCancel() override { call_->cancel(); }
  void OnDone() override {
    call_->leave();
    delete this;
  }

 private:
  // The message that was read goes to the call.
  Status feed() {
    state_.metrics.received.add(length_of(bytes_in_));
    if (Status s = state_.memory.grow(*room_, memory_for(bytes_in_)); !s.ok()) return s;
    const auto message = parse_message<v1::ScoreRequest>(bytes_in_);
    if (!message.ok()) return message.status();
    const bool first = call_->opened() == nullptr;
    if (Status s = first ? open(*message) : check_same(*message); !s.ok()) return s;
    auto values = chunk_of(*message, state_.text_input(*call_->opened()));
    if (!values.ok()) return values.status();
    call_->feed(std::move(*values), room_);
    return {};
  }

  Status open(const v1::ScoreRequest& message) {
    auto model = state_.models.find(call_->caller(), message.model());
    if (!model.ok()) return model.status();
    const auto queue_time = duration_of(message.max_queue_time(), "max_queue_time");
    if (!queue_time.ok()) return queue_time.status();
    const bool begin = message.has_begin() ? message.begin() : message.has_text();
    return call_->open(std::move(*model), start_of(message.origin()), begin, message.keep(),
                       *queue_time);
  }

  Status check_same(const v1::ScoreRequest& message) const {
    if (!message.model().empty() && message.model() != call_->opened()->name) {
      return invalid_argument("model changes within the call; only the first message names it");
    }
    if (message.keep()) {
      return invalid_argument("keep is set again; only the first message has it");
    }
    if (message.has_origin()) {
      return invalid_argument("origin is set again; only the first message has one");
    }
    return {};
  }

  // The answer to the chunk before, if there was one, has gone out.
  void read() override {
    bytes_in_.Clear();
    bytes_out_.Clear();
    MemoryBudget::shrink(*room_, memory_for(bytes_in_));
    StartRead(&bytes_in_);
  }
  void write(const ScoreEvent& event) override {
    v1::ScoreResponse message;
    encode(event, message);
    bytes_out_ = serialize_message(message);
    state_.metrics.sent.add(length_of(bytes_out_));
    StartWrite(&bytes_out_);
  }
  void finish(const Status& status) override {
    add_pushback(status, context_);
    Finish(to_grpc(status));
  }
  void cut_off() override { context_.TryCancel(); }

  ServerState& state_;
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer bytes_in_, bytes_out_;
  const std::shared_ptr<MemoryBudget::Hold> room_ = std::make_shared<MemoryBudget::Hold>();
  const std::shared_ptr<ScoringCall> call_;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* start_score(
    ServerState& state, grpc::CallbackServerContext& context) {
  auto* const reactor = new ScoreReactor(state, context);  // deletes itself
  reactor->start();
  return reactor;
}

}  // namespace runnel
