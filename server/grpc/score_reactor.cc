#include "server/grpc/score_reactor.h"

#include <string>
#include <utility>

#include "base/fields.h"
#include "engine/refusals.h"
#include "runnel/v1/inference.pb.h"
#include "server/calls/scoring_call.h"
#include "server/grpc/convert.h"
#include "server/grpc/stream_reactor.h"

namespace runnel {
namespace {

using ScoreBase = StreamReactor<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                                ScoringCall, ScoreSink>;

class ScoreReactor final : public ScoreBase {
 public:
  using ScoreBase::ScoreBase;

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

 private:
  // The message that was read goes to the call.
  Status feed() {
    count_received(bytes_in_);
    if (Status s = state_.memory.grow(*room_, memory_for(bytes_in_)); !s.ok()) return s;
    const auto message = parse_message<v1::ScoreRequest>(bytes_in_);
    if (!message.ok()) return message.status();
    const bool first = call_->opened() == nullptr;
    if (Status s = first ? open(*message) : check_same(*message); !s.ok()) return s;
    auto values = chunk_of(*message, state_.text_input(*call_->opened(), asked_));
    if (!values.ok()) return values.status();
    call_->feed(std::move(*values), room_);
    return {};
  }

  Status open(const v1::ScoreRequest& message) {
    auto model = find_model(message.model());
    if (!model.ok()) return model.status();
    if (message.origin().has_token()) {
      return invalid_argument(
          place_of(fields::kToken) +
          " is for Generate; make a session of it with ImportSession, and name that");
    }
    const auto asked = duration_of(message.max_queue_time(), fields::kMaxQueueTime);
    if (!asked.ok()) return asked.status();
    // A call that keeps its session needs no state beside it.
    const bool says = message.has_max_queue_time() || message.keep();
    const bool begin = message.has_begin() ? message.begin() : message.has_text();
    session_ = message.origin().session();
    asked_ = message.model();
    Origin origin = start_of(message.origin());
    origin.model = asked_;
    if (message.has_expected_position()) origin.expected_position = message.expected_position();
    return call_->open(std::move(*model), origin, begin, message.keep(),
                       says ? *asked : state_.queue_time);
  }

  Status check_same(const v1::ScoreRequest& message) const {
    const std::string& model = message.model();
    if (!model.empty() && model != asked_ && model != call_->opened()->name) {
      return invalid_argument(place_of(fields::kModel) +
                              " changes within the call; only the first message names it");
    }
    if (message.keep()) {
      return invalid_argument(place_of(fields::kKeep) +
                              " is set again; only the first message has it");
    }
    if (message.has_expected_position()) {
      return invalid_argument(place_of(fields::kExpectedPosition) +
                              " is set again; only the first message has it");
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
    name_session(std::exchange(session_, ""));
    v1::ScoreResponse message;
    encode(event, message);
    bytes_out_ = serialize_message(message);
    count_sent(bytes_out_);
    StartWrite(&bytes_out_);
  }

  std::string session_;  // that the call starts from, until the first message; empty: none
  std::string asked_;    // the name of the model in the first message
  grpc::ByteBuffer bytes_in_, bytes_out_;
  const std::shared_ptr<MemoryBudget::Hold> room_ = std::make_shared<MemoryBudget::Hold>();
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* start_score(
    ServerContext& state, grpc::CallbackServerContext& context) {
  auto* const reactor = new ScoreReactor("Score", state, context);  // deletes itself
  reactor->start();
  return reactor;
}

}  // namespace runnel
