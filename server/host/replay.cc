#include "server/host/replay.h"

#include <optional>
#include <utility>

#include "base/text.h"
#include "base/within_memory.h"
#include "engine/refusals.h"
#include "server/host/kept_sessions.h"

namespace runnel {
namespace {

// The account of replays takes turns with the callers' accounts, and has no quota. No key has such
// a name.
constexpr const char* kAccount = "(replays)";

}  // namespace

void Replay::start(Done done) {
  done_ = std::move(done);
  kept_.replays().post<&Replay::run_next>(shared_from_this());
}

void Replay::run_next() {
  if (at_ == calls_.size()) return finish({});
  const Status started = within_memory([&] {
    GenerateRequest request = std::move(calls_[at_].request);
    request.caller.name = session_.owner;
    request.caller.account = kAccount;
    request.session = session_.id;
    Engine& engine = *model_->engine;
    position_ = -1;
    sampled_ = kNoValues;
    stream_ = std::make_shared<TokenStream>(
        request.delivery, engine.stream_room(1), 0,
        [self = shared_from_this()] { self->kept_.replays().post<&Replay::take>(self); });
    return engine.generate(std::move(request), stream_);
  });
  if (started.ok()) return;
  stream_.reset();
  finish(refusal_of(started));
}

void Replay::take() {
  const std::shared_ptr<TokenStream> stream = stream_;
  if (stream == nullptr) return;
  std::optional<Status> end;
  const Status taken = within_memory([&] {
    // The call that waits for the session will be refused.
    if (kept_.context().draining) return draining_status();
    for (StreamGroup group; stream->take(group);) {
      for (const StreamValue& value : group.values) sampled_ = hash_with(sampled_, value.value);
      if (!group.finished.empty()) position_ = group.finished.back().position;
      if (group.end) end = group.end;
    }
    return Status();
  });
  if (!taken.ok()) {
    stream->cancel();
    end = taken;
  }
  if (!end) return;
  stream_.reset();
  take_end(std::move(*end));
}

void Replay::take_end(Status status) {
  const LoggedCall& call = calls_[at_];
  if (status.ok() && position_ != call.after) {
    status = {Code::kInternal, "it ended at position " + std::to_string(position_) + ", not at " +
                                   std::to_string(call.after) + "; please report this"};
  }
  if (status.ok() && sampled_ != call.sampled) {
    status = {Code::kFailedPrecondition,
              "it samples other values on this server; start it with the limits.recent_values that "
              "the call had, and report this if they are the same"};
  }
  if (!status.ok()) return finish(refusal_of(status));
  kept_.context().metrics.replayed_values.add(call.after - call.before);
  ++at_;
  run_next();
}

void Replay::finish(const Status& status) {
  if (const Done done = std::exchange(done_, nullptr)) done(status);
}

// The request is not the client's, so the error must not mention its fields.
Status Replay::refusal_of(const Status& status) const {
  const bool is_refused =
      status.code() == Code::kInvalidArgument || status.code() == Code::kOutOfRange;
  Status refusal(is_refused ? Code::kFailedPrecondition : status.code(),
                 "call " + std::to_string(at_ + 1) + " of the log of session " +
                     quote(session_.id) + " cannot be computed again: " + status.message());
  if (status.retry_after()) refusal.with_retry_after(*status.retry_after());
  return refusal.with_reason(status.reason());
}

}  // namespace runnel
