#include "server/grpc/generate_reactor.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/token_stream.h"
#include "runnel/v1/inference.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/wire.h"

namespace runnel {
namespace {

// Threads meet here: the scheduler's (wake), the writer's (pump), gRPC's (OnWriteDone, OnCancel).
// At most one of them at a time holds the turn, and only it touches the stream's groups, writes,
// and finishes. Who comes meanwhile leaves a flag and goes.
class GenerateReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                              public std::enable_shared_from_this<GenerateReactor> {
 public:
  GenerateReactor(ServerState& state, grpc::CallbackServerContext& context)
      : state_(state), context_(context) {}

  void start(const grpc::ByteBuffer& bytes) {
    self_ = shared_from_this();
    call_ = state_.calls.enter({.end = [](const Status&) {},  // the engine ends it
                                .cut_off =
                                    [weak = weak_from_this()](Duration limit) {
                                      if (const auto reactor = weak.lock()) reactor->cut_off(limit);
                                    }});
    if (Status status = submit(bytes); !status.ok()) {
      {
        std::lock_guard lock(mutex_);
        turn_taken_ = true;
      }
      finish(status);
    }
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      writing_since_.reset();
    }
    if (!ok) cancel();
    pump();
  }

  void OnCancel() override {
    cancel();
    if (take_turn()) pump();
  }

  void OnDone() override {
    state_.calls.leave(call_);
    // The scheduler may hold this object a moment longer, through a wake that has just begun.
    const auto last = std::move(self_);
  }

 private:
  Status submit(const grpc::ByteBuffer& bytes) {
    const auto message = parse_message<v1::GenerateRequest>(bytes);
    if (!message.ok()) return message.status();
    const auto model = state_.models.find(message->model());
    if (!model.ok()) return model.status();
    model_ = *model;
    auto request =
        request_of(*message, {model_->name, model_->tokenizer, state_.text_bytes}, state_.delivery);
    if (!request.ok()) return request.status();
    messages_.write_text(model_->tokenizer);
    with_top_ = request->top_log_probs > 0;
    Engine& engine = *model_->engine;
    // Its memory is asked for before the engine has looked at the request.
    const int top = std::clamp(request->top_log_probs, 0, kMaxTopLogProbs);
    stream_ = std::make_shared<TokenStream>(request->delivery, engine.stream_room(request->samples),
                                            top, [weak = weak_from_this()] {
                                              if (const auto reactor = weak.lock()) reactor->wake();
                                            });
    if (state_.log.wants_debug()) {
      state_.log.debug("call", {{"rpc", "Generate"},
                                {"peer", context_.peer()},
                                {"model", model_->name},
                                {"session", request->session.value_or("")},
                                {"request_id", request->request_id},
                                {"samples", int64_t{request->samples}}});
    }
    return engine.generate(std::move(*request), stream_);
  }

  void cancel() {
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    if (stream_ != nullptr) stream_->cancel();
  }

  // The engine has long ended the stream of a reader who takes nothing; what is left of the call is
  // a write that will never be done.
  void cut_off(Duration limit) {
    std::lock_guard lock(mutex_);
    const bool stalled =
        writing_since_ && std::chrono::steady_clock::now() - *writing_since_ >= limit;
    if (stalled) context_.TryCancel();  // it lives while a write is out
  }

  // On the scheduler's thread, which is not to be held up by writing.
  void wake() {
    if (!take_turn()) return;
    state_.writer.post<&GenerateReactor::pump>(shared_from_this());
  }

  // Something may be due: true when the turn is now the caller's; otherwise word is left with
  // whoever has it.
  bool take_turn() {
    std::lock_guard lock(mutex_);
    woken_ = true;
    return !std::exchange(turn_taken_, true);
  }

  // With the turn: writes the next message, finishes, or gives the turn back.
  void pump() {
    do {
      if (is_cancelled()) return finish({Code::kCancelled, "the call was cancelled"});
      if (messages_.next(message_)) return write();
      if (group_.end) return finish(*group_.end);
      if (stream_->take(group_)) messages_.start(group_, with_top_);
      begun_ = begun_ || group_.started;
    } while (!group_.empty() || !give_turn_back());
  }

  bool is_cancelled() {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }

  // False when word was left meanwhile: the turn goes on.
  bool give_turn_back() {
    std::lock_guard lock(mutex_);
    if (std::exchange(woken_, false) || cancelled_) return false;
    turn_taken_ = false;
    return true;
  }

  void write() {
    bytes_ = serialize_message(message_);
    {
      std::lock_guard lock(mutex_);
      writing_since_ = std::chrono::steady_clock::now();
    }
    StartWrite(&bytes_);  // OnWriteDone has the turn now
  }

  // With the turn, which is never given back.
  void finish(const Status& status) {
    log_end(status);
    add_pushback(status, context_);
    Finish(to_grpc(status));
  }

  void log_end(const Status& status) const {
    const std::string model = model_ == nullptr ? "" : model_->name;
    if (status.ok() || status.code() == Code::kCancelled) {
      state_.log.debug(
          "end",
          {{"rpc", "Generate"}, {"model", model}, {"code", std::string(code_name(status.code()))}});
      return;
    }
    state_.log.info(begun_ ? "failed" : "refused", {{"rpc", "Generate"},
                                                    {"model", model},
                                                    {"code", std::string(code_name(status.code()))},
                                                    {"message", status.message()}});
  }

  ServerState& state_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<GenerateReactor> self_;
  LiveCalls::Id call_ = 0;
  const ServedModel* model_ = nullptr;
  std::shared_ptr<TokenStream> stream_;
  bool with_top_ = false;

  // Whoever has the turn.
  StreamGroup group_;
  GroupMessages messages_;
  v1::GenerateResponse message_;
  bool begun_ = false;      // Started has come
  grpc::ByteBuffer bytes_;  // being written

  std::mutex mutex_;
  bool turn_taken_ = false;
  bool woken_ = false;
  bool cancelled_ = false;
  std::optional<TimePoint> writing_since_;  // a write is out
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* start_generate(ServerState& state,
                                                           grpc::CallbackServerContext& context,
                                                           const grpc::ByteBuffer& request) {
  const auto reactor = std::make_shared<GenerateReactor>(state, context);
  reactor->start(request);
  return reactor.get();
}

}  // namespace runnel
