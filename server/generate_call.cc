#include "server/generate_call.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace runnel {
namespace {

constexpr int64_t kCallBytes = 16 << 10;  // what a call takes whatever it asks for

// What a call may hold for its reader: its stream, the group that is taken from it, and an event.
int64_t bytes_of_answers(int room, int top_log_probs) {
  return kCallBytes + 2 * TokenStream::bytes(room, top_log_probs) +
         GroupEvents::bytes(room, top_log_probs);
}

}  // namespace

GenerateCall::GenerateCall(ServerState& state, CallOrigin origin, GenerateSink& sink)
    : Call(state, std::move(origin), sink), sink_(sink) {}

std::shared_ptr<GenerateCall> GenerateCall::make(ServerState& state, CallOrigin origin,
                                                 GenerateSink& sink) {
  return std::shared_ptr<GenerateCall>(new GenerateCall(state, std::move(origin), sink));
}

void GenerateCall::start(std::shared_ptr<const ServedModel> model, GenerateRequest request) {
  Engine& engine = *model->engine;
  request.caller = caller();
  // The stream's memory is allocated before the engine has looked at the request.
  const int top = std::clamp(request.top_log_probs, 0, kMaxTopLogProbs);
  const int room = engine.stream_room(request.samples);
  request.held_bytes = bytes_of_answers(room, top);
  auto hold = state_.memory.take(bytes_of(request) + request.held_bytes);
  if (!hold.ok()) return refuse(hold.status());
  // The stream is the last thing that is left of a call, and keeps the hold.
  const auto kept = std::make_shared<const MemoryBudget::Hold>(std::move(*hold));
  const auto stream = std::make_shared<TokenStream>(request.delivery, room, top,
                                                    [kept, wake = waker()] { wake(); });
  {
    std::lock_guard lock(mutex_);
    events_.emplace(model->tokenizer, request.top_log_probs > 0,
                    request.ignore_eos ? std::vector<int32_t>() : engine.spec().eos);
    stream_ = stream;
  }
  set_model(std::move(model));
  note_given(std::ssize(request.prompt));
  on_end([stream] { stream->cancel(); });
  log_start(request);
  if (Status s = engine.generate(std::move(request), stream); !s.ok()) refuse(s);
}

// What has been sampled by now still goes out.
void GenerateCall::end(const Status& status) {
  Call::end(status);
  release();
}

Call::Step GenerateCall::next() {
  std::shared_ptr<TokenStream> stream;
  {
    std::lock_guard lock(mutex_);
    stream = stream_;
  }
  if (stream == nullptr) return Waiting();
  for (;;) {
    if (const auto event = events_->next()) {
      note(*event);
      begin_write();
      sink_.write(*event);
      return Writing();
    }
    if (group_.end) return group_.end->ok() ? *group_.end : ending().value_or(*group_.end);
    if (!stream->take(group_)) return Waiting();
    events_->start(group_);
  }
}

void GenerateCall::note(const GenerateEvent& event) {
  if (const auto* started = std::get_if<Started>(&event)) return note_admitted(started->queued);
  const auto* values = std::get_if<SampledValues>(&event);
  if (values == nullptr) return;
  int64_t sampled = 0;
  for (const ValueRun& run : values->runs) sampled += std::ssize(run.values);
  note_values(sampled);
}

void GenerateCall::log_start(const GenerateRequest& request) const {
  if (!state_.log.wants_debug()) return;
  state_.log.debug("begin", {{"rpc", origin_.rpc},
                             {"peer", origin_.peer},
                             {"caller", caller().name},
                             {"model", model()->name},
                             {"session", request.session.value_or("")},
                             {"request_id", request.request_id},
                             {"samples", int64_t{request.samples}}});
}

}  // namespace runnel
