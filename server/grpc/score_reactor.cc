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
    const Status status = within_memory([this]() -> Status {
      count_received(bytes_in_);
      if (Status s = state_.memory.grow(*room_, memory_for(bytes_in_)); !s.ok()) return s;
      const Chunk chunk = {state_, call_, room_, start_};
      read_aside(bytes_in_, [chunk, bytes = bytes_in_] { return feed(bytes, chunk); });
      return {};
    });
    if (!status.ok()) call_->refuse(status);
  }
  void OnWriteDone(bool ok) override { call_->written(ok); }

 private:
  // The contents of the first message.
  struct Start {
    std::string session;  // the session to start from, cleared once an answer names it; empty: none
    std::string model;    // the model's name, as the caller wrote it
  };

  // The objects that feed() uses. It may run on another thread after the reactor has been deleted,
  // so it does not use the reactor itself.
  struct Chunk {
    ServerContext& state;
    std::shared_ptr<ScoringCall> call;
    std::shared_ptr<MemoryBudget::Hold> room;
    std::shared_ptr<Start> start;
  };

  // Gives the message that was read to the call.
  static Status feed(const grpc::ByteBuffer& bytes, const Chunk& chunk) {
    const auto message = parse_message<v1::ScoreRequest>(bytes);
    if (!message.ok()) return message.status();
    ScoringCall& call = *chunk.call;
    const bool first = call.opened() == nullptr;
    if (Status s = first ? open(*message, chunk) : check_same(*message, chunk); !s.ok()) return s;
    auto values = chunk_of(*message, chunk.state.text_input(*call.opened(), chunk.start->model));
    if (!values.ok()) return values.status();
    call.feed(std::move(*values), chunk.room);
    return {};
  }

  static Status open(const v1::ScoreRequest& message, const Chunk& chunk) {
    auto model = chunk.call->find_model(message.model());
    if (!model.ok()) return model.status();
    if (message.origin().has_token()) {
      return invalid_argument(
          place_of(fields::kToken) +
          " is for Generate; make a session of it with ImportSession, and name that");
    }
    const auto asked = duration_of(message.max_queue_time(), fields::kMaxQueueTime);
    if (!asked.ok()) return asked.status();
    // A call with `keep` uses its session's own state, so by default it does not wait for one.
    const bool says = message.has_max_queue_time() || message.keep();
    const bool begin = message.has_begin() ? message.begin() : message.has_text();
    chunk.start->session = message.origin().session();
    chunk.start->model = message.model();
    Origin origin = start_of(message.origin());
    origin.model = message.model();
    if (message.has_expected_position()) origin.expected_position = message.expected_position();
    return chunk.call->open(std::move(*model), origin, begin, message.keep(),
                            says ? *asked : chunk.state.queue_time);
  }

  static Status check_same(const v1::ScoreRequest& message, const Chunk& chunk) {
    const std::string& model = message.model();
    if (!model.empty() && model != chunk.start->model && model != chunk.call->opened()->name) {
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

  // Called when the answer to the previous chunk, if there is one, has been sent.
  void read() override {
    bytes_in_.Clear();
    bytes_out_.Clear();
    MemoryBudget::shrink(*room_, memory_for(bytes_in_));
    StartRead(&bytes_in_);
  }
  void write(const ScoreEvent& event) override {
    name_session(std::exchange(start_->session, ""));
    v1::ScoreResponse message;
    encode(event, message);
    bytes_out_ = serialize_message(message);
    count_sent(bytes_out_);
    StartWrite(&bytes_out_);
  }

  const std::shared_ptr<Start> start_ = std::make_shared<Start>();
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
