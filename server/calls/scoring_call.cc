#include "server/calls/scoring_call.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/hex.h"
#include "base/sha256.h"
#include "engine/refusals.h"

namespace runnel {
namespace {

// The maximum number of log-probabilities in one event: a quarter of the message size that gRPC's
// clients accept by default.
constexpr size_t kEventValues = 1 << 18;

}  // namespace

ScoringCall::ScoringCall(ServerContext& state, CallStart start, ScoreSink& sink)
    : Call(state, std::move(start), sink), sink_(sink) {}

std::shared_ptr<ScoringCall> ScoringCall::make(ServerContext& state, CallStart start,
                                               ScoreSink& sink) {
  return std::shared_ptr<ScoringCall>(new ScoringCall(state, std::move(start), sink));
}

// --- The door's side ---

void ScoringCall::start() {
  if (Status s = admit(); !s.ok()) return refuse(s);
  if (Status s = state_.models.ready(); !s.ok()) return refuse(s);
  // While the server drains, each engine refuses calls, but this call has not reached an engine
  // yet.
  if (state_.draining.load(std::memory_order_acquire)) return refuse(draining_status());
  resume();
}

Status ScoringCall::open(std::shared_ptr<const ServedModel> model, const Origin& origin, bool begin,
                         bool keep, Duration max_queue_time) {
  auto scoring = model->engine->start_score(caller(), origin, begin, keep, max_queue_time);
  if (!scoring.ok()) return scoring.status();
  scoring_ = *scoring;
  state_.log.debug("begin", {{"rpc", start_.rpc},
                             {"peer", start_.peer},
                             {"caller", caller().name},
                             {"model", model->name},
                             {"session", origin.session.value_or("")}});
  set_model(model);
  Stored stored;
  if (state_.kept && origin.session) {
    stored = std::make_shared<std::shared_ptr<StoredSession>>();
    use_ = {.id = *origin.session, .changes = keep, .expected_position = origin.expected_position};
  }
  stored_ = stored;
  on_end([model = std::move(model), scoring = scoring_, stored] {
    model->engine->end_score(scoring);
  });
  return {};
}

void ScoringCall::feed(std::vector<int32_t> values, std::shared_ptr<const void> room) {
  set_phase(Phase::kScoring);
  note_given(std::ssize(values));
  if (use_) return open_stored(std::move(values), std::move(room));
  score(std::move(values), std::move(room));
}

// Before the first chunk: opens the stored session that the call starts from.
void ScoringCall::open_stored(std::vector<int32_t> values, std::shared_ptr<const void> room) {
  SessionUse use = *std::exchange(use_, std::nullopt);
  const Sha256Digest digest = sha256_of(std::as_bytes(std::span(values)));
  use.request = "score " + hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
  const std::weak_ptr<ScoringCall> weak = std::static_pointer_cast<ScoringCall>(shared_from_this());
  use.on_lost = [weak](const Status& status) {
    if (const auto call = weak.lock()) call->refuse(status);
  };
  {
    std::lock_guard lock(mutex_);
    first_ = std::move(values);
    first_room_ = std::move(room);
  }
  state_.kept->open(model(), caller(), std::move(use), [weak](auto opened) {
    const auto call = weak.lock();
    if (call == nullptr) return;
    {
      std::lock_guard lock(call->mutex_);
      call->opened_stored_ = std::move(opened);
      call->phase_ = Phase::kOpened;
    }
    call->wake();
  });
}

void ScoringCall::score(std::vector<int32_t> values, std::shared_ptr<const void> room) {
  const std::weak_ptr<ScoringCall> weak = std::static_pointer_cast<ScoringCall>(shared_from_this());
  const Status status = model()->engine->score(
      scoring_, std::move(values), [weak, room = std::move(room)](Result<ScoredChunk> chunk) {
        const auto call = weak.lock();
        if (call == nullptr) return;
        call->answer(std::move(chunk));
        call->wake();
      });
  if (status.ok()) return;
  answer(status);
  wake();
}

void ScoringCall::close() {
  if (model() == nullptr) {
    return refuse(invalid_argument(
        "the call has no message: the first names the model, and each brings values"));
  }
  set_phase(Phase::kClosed);
  resume();
}

// --- Turns ---

ScoringCall::Phase ScoringCall::phase() const {
  std::lock_guard lock(mutex_);
  return phase_;
}

void ScoringCall::set_phase(Phase phase) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
}

void ScoringCall::answer(Result<ScoredChunk> chunk) {
  std::lock_guard lock(mutex_);
  answer_ = std::move(chunk);
  phase_ = Phase::kAnswered;
}

Call::Step ScoringCall::next() {
  if (answering_) return write_part();
  switch (phase()) {
    case Phase::kIdle:
      return ask();
    case Phase::kReading:
      if (const auto status = ending()) return *status;
      return Waiting();
    case Phase::kScoring:
      return Waiting();
    case Phase::kOpened:
      return score_first();
    case Phase::kAnswered:
      return take_answer();
    case Phase::kClosed:
      return save_session();
    case Phase::kSaving:
      return Waiting();
    case Phase::kSaved:
      return write_total();
    case Phase::kTotalled:
      break;
  }
  return Status();
}

Call::Step ScoringCall::ask() {
  if (const auto status = ending()) return *status;
  scored_ = {};  // it has been sent
  set_phase(Phase::kReading);
  begin_read();
  sink_.read();
  return Waiting();
}

// Runs in a turn of the call, because the scheduler's thread has no time for a chunk.
Call::Step ScoringCall::score_first() {
  std::optional<Result<std::shared_ptr<StoredSession>>> opened;
  std::vector<int32_t> values;
  std::shared_ptr<const void> room;
  {
    std::lock_guard lock(mutex_);
    opened.swap(opened_stored_);
    values = std::move(first_);
    room = std::move(first_room_);
    phase_ = Phase::kScoring;
  }
  if (!opened->ok()) return opened->status();
  const Stored stored = stored_.lock();
  if (stored == nullptr) return Waiting();  // the call has just ended
  *stored = **opened;
  reads_stored_ = *stored == nullptr;
  score(std::move(values), std::move(room));
  return Waiting();
}

Call::Step ScoringCall::take_answer() {
  {
    std::lock_guard lock(mutex_);
    if (Status s = answer_->status(); !s.ok()) {
      return reads_stored_ ? unless_given_up(std::move(s)) : s;
    }
    scored_ = std::move(**answer_);
    phase_ = Phase::kIdle;
  }
  for (const float log_prob : scored_.log_probs) total_.log_prob += log_prob;
  total_.values += std::ssize(scored_.log_probs);
  if (scored_.queued) note_admitted(*scored_.queued);
  note_values(0);
  written_ = 0;
  return write_part();
}

// Writes as much of the chunk's answer as fits in an event. Every chunk is answered, even if it has
// no log-probability.
Call::Step ScoringCall::write_part() {
  const size_t count = std::min(kEventValues, scored_.log_probs.size() - written_);
  const ScoredValues part = {.position = scored_.position + static_cast<int64_t>(written_),
                             .log_probs = std::span(scored_.log_probs).subspan(written_, count)};
  written_ += count;
  answering_ = written_ < scored_.log_probs.size();
  begin_write();
  sink_.write(part);
  return Writing();
}

// The engine releases the session, which is saved before the client learns of the end.
Call::Step ScoringCall::save_session() {
  const Stored stored = stored_.lock();
  const std::shared_ptr<StoredSession> session = stored == nullptr ? nullptr : *stored;
  release();
  if (session == nullptr) return write_total();
  set_phase(Phase::kSaving);
  const std::weak_ptr<ScoringCall> weak = std::static_pointer_cast<ScoringCall>(shared_from_this());
  session->save([weak](const Status& status) {
    const auto call = weak.lock();
    if (call == nullptr) return;
    {
      std::lock_guard lock(call->mutex_);
      call->saved_ = status;
      call->phase_ = Phase::kSaved;
    }
    call->wake();
  });
  return Waiting();
}

Call::Step ScoringCall::write_total() {
  set_phase(Phase::kTotalled);
  release();
  if (!saved_.ok()) return saved_;
  total_.numerics = model()->engine->numerics();
  begin_write();
  sink_.write(total_);
  return Writing();
}

}  // namespace runnel
