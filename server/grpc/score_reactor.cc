#include "server/grpc/score_reactor.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/refusals.h"
#include "runnel/v1/inference.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/wire.h"

namespace runnel {
namespace {

// Log-probabilities in one message: a quarter of what clients take by default.
constexpr size_t kMessageValues = 1 << 18;

// One thing at a time: a chunk is read, scored, answered; then the next is read. So whoever
// completes a phase alone touches what belongs to the call. Only end() and OnCancel come in
// between: while a read is out, end() finishes; otherwise it leaves word.
class ScoreReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public std::enable_shared_from_this<ScoreReactor> {
 public:
  ScoreReactor(ServerState& state, grpc::CallbackServerContext& context)
      : state_(state), context_(context) {}

  void start() {
    self_ = shared_from_this();
    const std::weak_ptr<ScoreReactor> weak = weak_from_this();
    call_ = state_.calls.enter({.end =
                                    [weak](const Status& status) {
                                      if (const auto reactor = weak.lock()) reactor->end(status);
                                    },
                                .cut_off =
                                    [weak](Duration limit) {
                                      if (const auto reactor = weak.lock()) reactor->cut_off(limit);
                                    }});
    if (Status s = state_.models.ready(); !s.ok()) return finish(s);
    if (state_.draining.load(std::memory_order_acquire)) {  // no engine has been asked yet
      return finish(draining_status());
    }
    read();
  }

  void OnReadDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      if (phase_ == Phase::kFinished) return;  // end() has finished under this read
      phase_ = Phase::kWorking;
      ++read_;
    }
    alarm_.reset();
    if (cancelled()) return finish({Code::kCancelled, "the call was cancelled"});
    if (!ok) return finish_total();
    if (Status s = score(); !s.ok()) finish(s);
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      writing_since_.reset();
    }
    if (!ok || cancelled()) return finish({Code::kCancelled, "the call was cancelled"});
    if (written_ < scored_.log_probs.size()) return write();
    read();
  }

  void OnCancel() override {
    std::shared_ptr<ScoreCall> scoring;
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      scoring = scoring_;
    }
    if (scoring != nullptr) model_->engine->end_score(scoring);
  }

  void OnDone() override {
    alarm_.reset();
    {
      std::lock_guard lock(mutex_);
      writing_since_.reset();  // the total's
    }
    state_.calls.leave(call_);
    const auto last = std::move(self_);
  }

 private:
  // kFinished is never left.
  enum class Phase { kWorking, kReading, kFinished };

  void read() {
    watch_for_chunk();
    std::optional<Status> ended;
    {
      // With the lock held, so that end() cannot finish before the read is out. No reaction comes
      // inside of StartRead.
      std::lock_guard lock(mutex_);
      ended = ended_;
      if (!ended) {
        phase_ = Phase::kReading;
        StartRead(&bytes_in_);
      }
    }
    if (ended) finish(*ended);
  }

  // A state is kept for this call while the next chunk is awaited: not for ever.
  void watch_for_chunk() {
    alarm_ = std::make_unique<grpc::Alarm>();
    const auto deadline =
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::microseconds>(state_.stall_timeout);
    alarm_->Set(deadline, [weak = weak_from_this(), awaited = read_](bool expired) {
      const auto reactor = expired ? weak.lock() : nullptr;
      if (reactor == nullptr) return;
      reactor->end(
          {Code::kAborted, "no chunk came for too long; send the next one sooner, or half-close"},
          awaited);
    });
  }

  // From any thread: ends the call with a status, now or after what is under way; unless the chunk
  // of the number `awaited` has come by now.
  void end(const Status& status, std::optional<int64_t> awaited = {}) {
    {
      std::lock_guard lock(mutex_);
      if (phase_ == Phase::kFinished || ended_ || awaited.value_or(read_) != read_) return;
      ended_ = status;
      if (phase_ != Phase::kReading) return;
      phase_ = Phase::kFinished;
    }
    conclude(status);
  }

  // A caller who does not read the answers holds a state: not for ever.
  void cut_off(Duration limit) {
    std::lock_guard lock(mutex_);
    const bool stalled =
        writing_since_ && std::chrono::steady_clock::now() - *writing_since_ >= limit;
    if (stalled) context_.TryCancel();  // it lives while a write is out
  }

  bool cancelled() {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }

  // The chunk that was read goes to the engine. Not OK: refused.
  Status score() {
    const auto message = parse_message<v1::ScoreRequest>(bytes_in_);
    if (!message.ok()) return message.status();
    if (Status s = scoring_ == nullptr ? open(*message) : check_same(*message); !s.ok()) return s;
    auto values = chunk_of(*message, {model_->name, model_->tokenizer, state_.text_bytes});
    if (!values.ok()) return values.status();
    return model_->engine->score(scoring_, std::move(*values),
                                 [reactor = shared_from_this()](Result<ScoredChunk> chunk) {
                                   reactor->answer(std::move(chunk));
                                 });
  }

  // The first message: which model, and from where.
  Status open(const v1::ScoreRequest& message) {
    const auto model = state_.models.find(message.model());
    if (!model.ok()) return model.status();
    auto session = session_of(message.origin());
    if (!session.ok()) return session.status();
    auto scoring = (*model)->engine->start_score("", *session);
    if (!scoring.ok()) return scoring.status();
    model_ = *model;
    state_.log.debug("call", {{"rpc", "Score"},
                              {"peer", context_.peer()},
                              {"model", model_->name},
                              {"session", session->value_or("")}});
    std::lock_guard lock(mutex_);
    scoring_ = std::move(*scoring);
    if (cancelled_) return {Code::kCancelled, "the call was cancelled"};
    return {};
  }

  Status check_same(const v1::ScoreRequest& message) const {
    if (!message.model().empty() && message.model() != model_->name) {
      return invalid_argument("model changes within the call; only the first message names it");
    }
    if (message.has_origin()) {
      return invalid_argument("origin is set again; only the first message has one");
    }
    return {};
  }

  // On the scheduler's thread, which is not to be held up by writing, or on this one.
  void answer(Result<ScoredChunk> chunk) {
    answer_ = std::move(chunk);
    state_.writer.post<&ScoreReactor::write_answer>(shared_from_this());
  }

  void write_answer() {
    if (!answer_->ok()) return finish(answer_->status());
    scored_ = std::move(**answer_);
    written_ = 0;
    for (const float log_prob : scored_.log_probs) log_prob_ += log_prob;
    values_ += static_cast<int64_t>(scored_.log_probs.size());
    write();
  }

  // Writes what is left of the chunk, or as much as fits a message. One without any goes as well:
  // every chunk is answered.
  void write() {
    const size_t count = std::min(kMessageValues, scored_.log_probs.size() - written_);
    v1::ScoreResponse message;
    v1::ScoreChunk& chunk = *message.mutable_chunk();
    chunk.set_position(scored_.position + static_cast<int64_t>(written_));
    const auto first = scored_.log_probs.begin() + static_cast<std::ptrdiff_t>(written_);
    chunk.mutable_log_probs()->Add(first, first + static_cast<std::ptrdiff_t>(count));
    written_ += count;
    bytes_out_ = serialize_message(message);
    {
      std::lock_guard lock(mutex_);
      writing_since_ = std::chrono::steady_clock::now();
    }
    StartWrite(&bytes_out_);
  }

  void finish_total() {
    if (scoring_ == nullptr) {
      return finish(invalid_argument(
          "the call has no message: the first names the model, and each brings values"));
    }
    v1::ScoreResponse message;
    *message.mutable_total() = total_of(values_, log_prob_, model_->engine->numerics());
    bytes_out_ = serialize_message(message);
    {
      std::lock_guard lock(mutex_);
      phase_ = Phase::kFinished;
      writing_since_ = std::chrono::steady_clock::now();
    }
    release();
    log_end({});
    StartWriteAndFinish(&bytes_out_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void finish(const Status& status) {
    {
      std::lock_guard lock(mutex_);
      phase_ = Phase::kFinished;
    }
    conclude(status);
  }

  void conclude(const Status& status) {
    release();
    log_end(status);
    add_pushback(status, context_);
    Finish(to_grpc(status));
  }

  // The state is on its way back before the client hears of the end: whoever scores next has it.
  void release() const {
    if (scoring_ != nullptr) model_->engine->end_score(scoring_);
  }

  void log_end(const Status& status) const {
    const std::string model = model_ == nullptr ? "" : model_->name;
    if (status.ok() || status.code() == Code::kCancelled) {
      state_.log.debug("end", {{"rpc", "Score"},
                               {"model", model},
                               {"code", std::string(code_name(status.code()))},
                               {"values", values_}});
      return;
    }
    state_.log.info(values_ > 0 ? "failed" : "refused",
                    {{"rpc", "Score"},
                     {"model", model},
                     {"code", std::string(code_name(status.code()))},
                     {"message", status.message()}});
  }

  ServerState& state_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<ScoreReactor> self_;
  LiveCalls::Id call_ = 0;

  // Whoever completes a phase.
  const ServedModel* model_ = nullptr;
  grpc::ByteBuffer bytes_in_, bytes_out_;
  std::optional<Result<ScoredChunk>> answer_;  // the engine's, to the last chunk
  ScoredChunk scored_;
  size_t written_ = 0;     // of scored_.log_probs
  int64_t values_ = 0;     // scored in all
  double log_prob_ = 0.0;  // of all of them
  std::unique_ptr<grpc::Alarm> alarm_;

  std::mutex mutex_;
  Phase phase_ = Phase::kWorking;
  int64_t read_ = 0;                    // chunks read
  std::shared_ptr<ScoreCall> scoring_;  // null before the first chunk
  std::optional<Status> ended_;         // by end(), while something was under way
  bool cancelled_ = false;
  std::optional<TimePoint> writing_since_;  // a write is out
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* start_score(
    ServerState& state, grpc::CallbackServerContext& context) {
  const auto reactor = std::make_shared<ScoreReactor>(state, context);
  reactor->start();
  return reactor.get();
}

}  // namespace runnel
