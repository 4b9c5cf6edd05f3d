#include "engine/scheduler.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/hex.h"

namespace runnel {
namespace {

constexpr Duration kExpiryInterval = std::chrono::seconds(1);
constexpr Duration kWaitWithCalls = std::chrono::milliseconds(50);
constexpr Duration kStepTimeout = std::chrono::seconds(60);
constexpr Duration kWaitIdle = std::chrono::seconds(1);

PlanLimits plan_limits(const ModelLimits& model, const EngineOptions& options) {
  return {.rows = static_cast<int>(std::min<int64_t>(model.rows, options.batch_rows)),
          .values = static_cast<int>(std::min<int64_t>(model.values, options.batch_values)),
          .steps = static_cast<int>(std::min<int64_t>(model.steps, options.steps_per_launch)),
          .chunk = model.chunk};
}

}  // namespace

Scheduler::Scheduler(Model& model, const EngineOptions& options, const Clock& clock)
    : model_(model),
      options_(options),
      clock_(clock),
      plan_limits_(plan_limits(model.limits(), options)),
      mailbox_(static_cast<size_t>(options.mailbox)),
      pool_(model.limits().slots),
      random_(std::random_device{}()) {
  const auto rows = static_cast<size_t>(plan_limits_.rows);
  // More candidates than slots there cannot be: each has one of its own.
  candidates_.reserve(static_cast<size_t>(pool_.size()));
  subjects_.reserve(static_cast<size_t>(pool_.size()));
  plan_.shares.reserve(rows);
  plan_.waiting.reserve(static_cast<size_t>(pool_.size()));
  rows_.reserve(rows);
  emitted_.reserve(rows * plan_limits_.steps + plan_limits_.values);
  publish();
}

void Scheduler::end_all(Status status) {
  {
    std::lock_guard lock(end_all_mutex_);
    end_all_ = std::move(status);
  }
  mailbox_.nudge();
}

EngineStats Scheduler::stats() const {
  return {.sessions = model_.limits().slots,
          .sessions_free = sessions_free_.load(std::memory_order_relaxed),
          .steps = steps_.load(std::memory_order_relaxed),
          .values_sampled = sampled_.load(std::memory_order_relaxed),
          .values_consumed = consumed_.load(std::memory_order_relaxed)};
}

void Scheduler::publish() {
  sessions_free_.store(pool_.free(), std::memory_order_relaxed);
  active_calls_.store(static_cast<int>(generations_.size() + scores_.size()),
                      std::memory_order_release);
}

bool Scheduler::turn() {
  now_ = clock_.now();
  mailbox_.take(commands_);
  end_what_is_over();  // what it gives back is there for who asks now
  const bool asked = !commands_.empty();
  run_commands();
  end_what_is_over();  // what was over before it came
  expire_sessions();
  gather();
  plan_batch(candidates_, plan_limits_, round_, plan_);
  const bool stepped = !plan_.shares.empty();
  if (stepped) step();
  now_ = clock_.now();
  for (const auto& generation : generations_) generation->stream->flush(now_);
  forget_ended();
  publish();
  return stepped || asked;
}

void Scheduler::wait() { mailbox_.wait(active_calls() > 0 ? kWaitWithCalls : kWaitIdle); }

void Scheduler::run_commands() {
  for (Command& command : commands_) command(*this);
  commands_.clear();
}

// --- What could be advanced
// -----------------------------------------------------------------------

void Scheduler::gather() {
  candidates_.clear();
  subjects_.clear();
  for (const auto& generation : generations_) {
    if (generation->ended) continue;
    if (generation->resend || generation->replaying()) replay_recorded(*generation);
    if (generation->ended || generation->replaying()) continue;
    if (generation->sampling) {
      gather_samples(*generation);
      continue;
    }
    const auto inputs = static_cast<int64_t>(generation->unfed().size());
    candidates_.push_back({.want = Want::kNothing,
                           .inputs = inputs,
                           .position = generation->samples[0].session->position - 1,
                           .since = generation->admitted});
    subjects_.push_back({.generation = generation.get()});
  }
  for (const auto& call : scores_) {
    if (call->unfed().empty()) continue;
    candidates_.push_back({.want = Want::kScores,
                           .inputs = static_cast<int64_t>(call->unfed().size()),
                           .position = call->session->position - 1,
                           .since = call->came});
    subjects_.push_back({.score = call.get()});
  }
}

// A retry is sent what the first try was sent; then it goes on, or ends, where that one did.
void Scheduler::replay_recorded(Generation& generation) {
  replay(generation, now_);
  if (generation.replaying()) {
    if (!generation.stalled_since) generation.stalled_since = now_;
    generation.stream->starve();
    return;
  }
  generation.stalled_since.reset();
  if (!generation.resend) return;
  generation.stream->finish(*generation.record->finished);
  generation.stream->end({});
  generation.ended = true;
}

void Scheduler::gather_samples(Generation& generation) {
  const int live = generation.live_samples();
  const int room = generation.stream->room() / live;
  if (room == 0) {
    if (!generation.stalled_since) generation.stalled_since = now_;
    generation.stream->starve();
    return;
  }
  generation.stalled_since.reset();
  for (size_t i = 0; i < generation.samples.size(); ++i) {
    if (generation.samples[i].finished) continue;
    candidates_.push_back({.want = Want::kNext,
                           .inputs = 1,
                           .room = room,
                           .single_step = generation.request.may_stop()});
    subjects_.push_back({.generation = &generation, .sample = static_cast<int>(i)});
  }
}

// --- The step
// ---------------------------------------------------------------------------------------

void Scheduler::step() {
  rows_.clear();
  emitted_.clear();
  for (const Share& share : plan_.shares) {
    const Subject& subject = subjects_[share.candidate];
    const Want want = candidates_[share.candidate].want;
    if (want == Want::kNext) {
      rows_.push_back({subject.generation->samples[subject.sample].session->slot, {}, want});
    } else if (want == Want::kScores) {
      const auto values = subject.score->unfed().first(share.inputs);
      rows_.push_back({subject.score->session->slot, values, want});
    } else {
      const auto values = subject.generation->unfed().first(share.inputs);
      rows_.push_back({subject.generation->samples[0].session->slot, values, want});
    }
  }
  const Ticket ticket = model_.submit(rows_, plan_.steps);
  const Status status = collect(ticket);
  now_ = clock_.now();
  if (!status.ok()) {
    for (const Share& share : plan_.shares) lose(subjects_[share.candidate], status);
    return;
  }
  steps_.fetch_add(plan_.steps, std::memory_order_relaxed);
  for (const Emitted& emitted : emitted_) {
    hand_out(subjects_[plan_.shares[emitted.row].candidate], emitted);
  }
  for (const Share& share : plan_.shares) {
    if (candidates_[share.candidate].want == Want::kNext) continue;
    advance(subjects_[share.candidate], share.inputs);
  }
}

// Waits for the device, and not for ever: one that does not answer cannot be served from.
Status Scheduler::collect(Ticket ticket) {
  const TimePoint started = std::chrono::steady_clock::now();
  while (true) {
    const Result<bool> done = model_.collect(ticket, emitted_);
    if (!done.ok()) return done.status();
    if (*done) return {};
    check(std::chrono::steady_clock::now() - started < kStepTimeout, "the device answers in time");
    std::this_thread::yield();
  }
}

// The device failed while it worked on this: the state is gone, and with it call and session.
void Scheduler::lose(const Subject& subject, const Status& status) {
  if (subject.score != nullptr) {
    end_score(*subject.score, status);
    return;
  }
  Generation& generation = *subject.generation;
  if (generation.ended) return;  // another of its samples was in the batch, too
  const SessionKey key =
      generation.samples[0].session == nullptr ? SessionKey{} : generation.samples[0].session->key;
  end_generation(generation, status);
  if (Session* session = sessions_.find(key)) forget_session(*session);
}

void Scheduler::hand_out(const Subject& subject, const Emitted& emitted) {
  if (subject.score != nullptr) {
    subject.score->scored.log_probs.push_back(emitted.log_prob);  // reserved with the chunk
    return;
  }
  sampled_.fetch_add(1, std::memory_order_relaxed);
  const auto reason =
      take_value(*subject.generation, subject.sample, emitted, model_.spec().max_length(), now_);
  if (reason) finish_sample(*subject.generation, subject.sample, *reason);
}

// A prompt or a chunk has consumed `inputs` more of its values.
void Scheduler::advance(const Subject& subject, int inputs) {
  consumed_.fetch_add(inputs, std::memory_order_relaxed);
  if (subject.score != nullptr) {
    ScoreCall& call = *subject.score;
    call.fed += inputs;
    call.session->position += inputs;
    call.session->pending = call.values[call.fed - 1];
    if (call.unfed().empty()) call.complete(std::move(call.scored));
    return;
  }
  Generation& generation = *subject.generation;
  Session& session = *generation.samples[0].session;
  generation.fed += inputs;
  session.position += inputs;
  session.pending = generation.request.prompt[generation.fed - 1];
  if (generation.unfed().empty()) start_sampling(generation);
}

// --- Slots and sessions
// -------------------------------------------------------------------------------

Status Scheduler::lease_refusal(int needed) const {
  Status status(Code::kResourceExhausted,
                "no room for " + std::to_string(needed) +
                    " more states: " + std::to_string(std::max(pool_.unclaimed(), 0)) + " of " +
                    std::to_string(pool_.size()) +
                    " sessions are free; try again later, or delete sessions that are done");
  if (needed <= pool_.size()) status.with_retry_after(std::chrono::seconds(1));
  return status;
}

void Scheduler::copy_state(Session& from, Session& to) {
  from.apply(SessionEvent::kMove);
  model_.copy(from.slot, to.slot);
  from.apply(SessionEvent::kMoved);
  to.position = from.position;
  to.pending = from.pending;
}

// Tells the slot what its session knows, and what `control` adds to it.
void Scheduler::set_slot(const Session& session, Control control, bool zero_state) {
  control.pending = session.pending;
  control.position = session.position - (session.pending == kNoValue ? 0 : 1);
  model_.set(session.slot, control, zero_state);
}

// The session that a call goes on in: the one that it names, or a new one whose id follows from the
// request_id, so that a retry finds it. An empty id where neither decides.
SessionKey Scheduler::key_of(const GenerateRequest& request) {
  if (request.session) return {request.owner, *request.session};
  if (request.request_id.empty() || !request.keep.value_or(false)) return {request.owner, ""};
  return {request.owner, "r-" + hex(hash_of(request.request_id))};
}

SessionKey Scheduler::unused_key(const std::string& owner) {
  SessionKey key{owner, ""};
  do {
    key.id = "s-" + hex(random_());
  } while (sessions_.find(key) != nullptr);
  return key;
}

Result<SessionInfo> Scheduler::create_session(SessionKey key) {
  if (key.id.empty()) key = unused_key(key.owner);
  if (sessions_.find(key) != nullptr) {
    return Status(Code::kAlreadyExists, "session '" + key.id + "' exists already");
  }
  if (pool_.free() == 0) return lease_refusal(1);
  Session session;
  session.key = std::move(key);
  session.slot = *pool_.lease();
  session.idle_since = now_;
  set_slot(session, {}, true);
  return describe(*sessions_.insert(std::move(session)), now_);
}

Result<SessionInfo> Scheduler::get_session(const SessionKey& key) {
  const Session* session = sessions_.find(key);
  if (session == nullptr) return not_found("no session '" + key.id + "'");
  return describe(*session, now_);
}

SessionPage Scheduler::list_sessions(const std::string& owner, const std::string& after,
                                     int count) const {
  return sessions_.page(owner, after, count, now_);
}

Status Scheduler::delete_session(const SessionKey& key) {
  Session* session = sessions_.find(key);
  if (session == nullptr) return not_found("no session '" + key.id + "'");
  for (const auto& generation : generations_) {
    if (!generation->ended && generation->samples[0].session == session) {
      end_generation(*generation, {Code::kAborted, "session '" + key.id + "' was deleted"});
    }
  }
  forget_session(*session);
  return {};
}

void Scheduler::end_session(Session& session) {
  session.apply(SessionEvent::kEnd);
  pool_.release(session.slot);
}

// Ends a named session and frees its name.
void Scheduler::forget_session(Session& session) {
  end_session(session);
  sessions_.erase(SessionKey(session.key));
}

void Scheduler::expire_sessions() {
  if (now_ < next_expiry_) return;
  next_expiry_ = now_ + kExpiryInterval;
  while (Session* session = sessions_.find_rested(now_ - options_.idle_timeout)) {
    forget_session(*session);
  }
}

// --- Endings
// ------------------------------------------------------------------------------------------

void Scheduler::end_what_is_over() {
  std::optional<Status> all;
  {
    std::lock_guard lock(end_all_mutex_);
    all.swap(end_all_);
  }
  for (const auto& generation : generations_) {
    if (all && !generation->ended) end_generation(*generation, *all);
    if (!generation->ended) end_if_over(*generation);
  }
  for (const auto& call : scores_) {
    if (all) end_score(*call, *all);
    if (call->cancelled.load(std::memory_order_acquire)) {
      end_score(*call, {Code::kCancelled, "the call was cancelled"});
    }
  }
  forget_ended();
}

void Scheduler::end_if_over(Generation& generation) {
  if (generation.stream->cancelled()) {
    end_generation(generation, {Code::kCancelled, "the call was cancelled"});
    return;
  }
  // Room made since then is not seen before the next gather().
  if (generation.stalled_since && now_ - *generation.stalled_since >= options_.stall_timeout &&
      generation.stream->room() < std::max(1, generation.live_samples())) {
    end_generation(generation, {Code::kAborted,
                                "the stream was not read for too long; the sequence stands at the "
                                "last value sampled"});
    return;
  }
  if (generation.replaying()) return;  // what is recorded is sent whole, however late
  const auto max_time = generation.request.max_time;
  if (!max_time || now_ - generation.admitted < *max_time) return;
  for (size_t i = 0; i < generation.samples.size(); ++i) {
    if (generation.samples[i].finished) continue;
    finish_sample(generation, static_cast<int>(i), FinishReason::kTime);
  }
}

void Scheduler::finish_sample(Generation& generation, int index, FinishReason reason) {
  Sample& sample = generation.samples[index];
  sample.finished = true;
  const Finished finished = {.sample = index,
                             .reason = reason,
                             .prompt_values = static_cast<int64_t>(generation.fed),
                             .sampled_values = sample.sampled,
                             .position = sample.session->position,
                             .elapsed = now_ - generation.admitted};
  // The slot first: who hears of the end may call again at once.
  give_back(sample);
  generation.stream->finish(finished);
  if (generation.record) generation.record->finished = finished;
  if (generation.live_samples() > 0) return;
  generation.ended = true;
  generation.stream->end({});
}

void Scheduler::end_generation(Generation& generation, Status status) {
  for (Sample& sample : generation.samples) {
    if (sample.session != nullptr) give_back(sample);
  }
  generation.ended = true;
  generation.stream->end(std::move(status));
}

// An ephemeral session ends with its sample; a named one rests where it stands.
void Scheduler::give_back(Sample& sample) {
  Session& session = *std::exchange(sample.session, nullptr);
  if (session.key.id.empty()) {
    end_session(session);
    return;
  }
  if (!session.resting()) session.apply(SessionEvent::kPause);
  session.idle_since = now_;
}

void Scheduler::end_score(ScoreCall& call, Status status) {
  if (call.over()) return;
  end_session(*call.session);
  call.complete(std::move(status));
}

void Scheduler::forget_ended() {
  std::erase_if(generations_, [](const auto& generation) { return generation->ended; });
  std::erase_if(scores_, [](const auto& call) { return call->over(); });
}

}  // namespace runnel
