#include "engine/scheduler.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "engine/account_usage.h"
#include "engine/refusals.h"

namespace runnel {
namespace {

constexpr Duration kWaitWithCalls = std::chrono::milliseconds(50);
constexpr Duration kWaitWithPace = std::chrono::milliseconds(2);
constexpr Duration kMostBehind = std::chrono::seconds(1);  // of an account that may make new calls
constexpr Duration kStepTimeout = std::chrono::seconds(60);
constexpr Duration kWaitIdle = std::chrono::seconds(1);
constexpr int64_t kWorkPerTurn = 256;  // of commands: about a millisecond

}  // namespace

Scheduler::Scheduler(Model& model, const EngineOptions& options, const Clock& clock)
    : model_(model),
      options_(options),
      clock_(clock),
      limits_(model.limits()),
      mailbox_(static_cast<size_t>(options.mailbox), options.mailbox_bytes),
      sessions_(model, options),
      queue_(options.queue, options.queue_bytes) {
  const auto rows = static_cast<size_t>(limits_.rows);
  // Each candidate has a slot of its own.
  const auto candidates = static_cast<size_t>(limits_.slots);
  candidates_.reserve(candidates);
  subjects_.reserve(candidates);
  plan_.shares.reserve(rows);
  owners_.reserve(candidates);
  plan_.waiting.reserve(candidates);
  plan_.places.reserve(candidates);
  rows_.reserve(rows);
  emitted_.reserve(rows * limits_.steps + limits_.values);
  launches_.resize(limits_.launches);
  for (Launch& launch : launches_) launch.parts.reserve(rows);
  publish();
}

bool Scheduler::put(Command command) {
  const int64_t bytes = command.bytes;
  return mailbox_.put(std::move(command), bytes);
}

bool Scheduler::put_admitted(Command command) {
  const int64_t bytes = command.bytes;
  return mailbox_.put_beyond(std::move(command), bytes);
}

void Scheduler::end_all(Status status) {
  {
    std::lock_guard lock(status_mutex_);
    end_all_ = std::move(status);
  }
  mailbox_.nudge();
}

void Scheduler::drain() {
  draining_.store(true, std::memory_order_release);
  mailbox_.nudge();  // calls that wait are refused at once
}

Status Scheduler::claim(int slots) {
  const int kept_for = slots == 0 ? 0 : kept_for_.load(std::memory_order_acquire);
  return kept_for == 0 ? sessions_.claim(slots) : others_wait(kept_for);
}

Status Scheduler::check_pace(const Caller& caller) const {
  if (caller.usage == nullptr) return {};
  const Duration behind = caller.usage->behind(clock_.now());
  if (behind <= kMostBehind) return {};
  return values_used_up(caller.account, caller.usage->values_per_second(), behind);
}

Status Scheduler::refusal() const {
  if (failed_.load(std::memory_order_acquire)) return failure();
  if (draining_.load(std::memory_order_acquire)) return draining_status();
  return {};
}

Status Scheduler::failure() const {
  std::lock_guard lock(status_mutex_);
  return failure_;
}

EngineStats Scheduler::stats() const {
  return {.sessions = sessions_.slots(),
          .sessions_free = sessions_free_.load(std::memory_order_relaxed),
          .slots_by_state = sessions_.slots_by_state(),
          .steps = metrics_.step_time.count(),
          .values_sampled = metrics_.values_sampled.value(),
          .values_consumed = metrics_.values_consumed.value(),
          .waiting = waiting_.load(std::memory_order_relaxed)};
}

void Scheduler::publish() {
  sessions_free_.store(sessions_.free_slots(), std::memory_order_relaxed);
  waiting_.store(queue_.size(), std::memory_order_relaxed);
  active_calls_.store(static_cast<int>(generations_.size() + scores_.size()) + queue_.size(),
                      std::memory_order_release);
}

bool Scheduler::turn() {
  now_ = clock_.now();
  const size_t waiting = mailbox_.look();
  end_calls();  // so that the commands find the slots that this frees
  const bool asked = run_commands(waiting);
  end_calls();  // so that a call that was cancelled before it came costs no step
  const bool moved = move_states();
  sessions_.expire(now_);
  const bool served = serve_queue();
  gather();
  plan_batch(candidates_, owners_, limits_, plan_);
  note_served();
  const bool stepped = !plan_.shares.empty() || on_their_way_ > 0;
  if (!plan_.shares.empty()) submit();
  settle(may_stay_on_its_way() ? limits_.launches - 1 : 0);
  now_ = clock_.now();
  for (const auto& generation : generations_) generation->stream->flush(now_);
  forget_ended();
  publish();
  return stepped || asked || moved || served || sessions_.rewinds().copied();
}

void Scheduler::wait() {
  mailbox_.wait(paces_ ? kWaitWithPace : active_calls() > 0 ? kWaitWithCalls : kWaitIdle);
}

// Runs commands up to the work of one turn, of those that had come before the calls were ended: a
// call that comes after the end of another finds its slot. True when there was one.
bool Scheduler::run_commands(size_t waiting) {
  int64_t work = 0;
  for (size_t i = 0; i < waiting && work < kWorkPerTurn; ++i) {
    const std::optional<Command> command = mailbox_.take();
    command->run(*this);
    work += command->work;
  }
  return waiting > 0;
}

// --- Sessions by name ---

Result<SessionInfo> Scheduler::create_session(SessionKey key, const Caller& caller) {
  if (Status s = refusal(); !s.ok()) return s;
  if (queue_.keeps()) return others_wait(queue_.size());
  return sessions_.create(std::move(key), caller, now_);
}

Result<SessionInfo> Scheduler::get_session(const SessionKey& key) {
  return sessions_.get(key, now_);
}

SessionPage Scheduler::list_sessions(const std::string& owner, const std::string& after,
                                     int count) const {
  return sessions_.page(owner, after, count, now_);
}

Status Scheduler::delete_session(const SessionKey& key) {
  Session* session = sessions_.find(key);
  if (session == nullptr) return not_found("no session '" + key.id + "'");
  if (session->state == SessionState::kMoving) {
    Status busy(Code::kAborted, "the state of session '" + key.id + "' is being copied; try again");
    return busy.with_retry_after(std::chrono::milliseconds(100));
  }
  for (const auto& generation : generations_) {
    if (!generation->ended() && generation->samples[0].session == session) {
      end_generation(*generation, {Code::kAborted, "session '" + key.id + "' was deleted"});
    }
  }
  for (const auto& call : scores_) {
    if (call->session == session) {
      end_score(*call, {Code::kAborted, "session '" + key.id + "' was deleted"});
    }
  }
  sessions_.forget(*session);
  return {};
}

// --- Candidates of a step ---

// The turns of an account. A new one joins at the end of the round.
std::shared_ptr<OwnerTurns> Scheduler::turns_of(const Caller& caller) {
  const auto [it, is_new] = turns_.try_emplace(caller.account);
  if (is_new) {
    it->second = std::make_shared<OwnerTurns>();
    it->second->owner = {.served = shares_, .fed = shares_};
  }
  it->second->usage = caller.usage;
  return it->second;
}

OwnerTurns& Scheduler::turns_of(const Subject& subject) {
  return subject.score ? *subject.score->turns : *subject.generation->turns;
}

// True when the account has had more values than its quota allows by now: its rows are left out
// of this plan.
bool Scheduler::is_ahead(const OwnerTurns& turns) {
  if (turns.usage == nullptr || turns.usage->behind(now_) <= Duration(0)) return false;
  paces_ = true;
  return true;
}

void Scheduler::charge(const OwnerTurns& turns, int64_t values) {
  if (turns.usage) turns.usage->charge(values, now_);
}

// The index of an owner in owners_.
int Scheduler::gather_owner(OwnerTurns& turns) {
  if (turns.gathered != plans_) {
    turns.gathered = plans_;
    turns.index = static_cast<int>(owners_.size());
    owners_.push_back(turns.owner);
  }
  return turns.index;
}

void Scheduler::gather() {
  ++plans_;
  candidates_.clear();
  subjects_.clear();
  owners_.clear();
  paces_ = false;
  sessions_.rewinds().begin_turn();
  for (const auto& generation : generations_) {
    if (generation->phase == GenerationPhase::kResending) resend_recorded(*generation);
    if (is_ahead(*generation->turns)) continue;
    if (generation->phase == GenerationPhase::kPrompting) gather_prompt(*generation);
    if (generation->phase == GenerationPhase::kSampling) gather_samples(*generation);
  }
  for (const auto& call : scores_) {
    if (!call->unfed().empty() && !is_ahead(*call->turns)) gather_score(*call);
  }
}

// Sends a retry the values of the earlier try; after the last one, goes on or ends as that try
// did.
void Scheduler::resend_recorded(Generation& generation) {
  if (!resend(generation, now_)) {
    note_stall(generation);
    return;
  }
  generation.stalled_since.reset();
  if (!generation.record->finished) {
    generation.apply(GenerationEvent::kSample);
    return;
  }
  generation.apply(GenerationEvent::kEnd);
  generation.stream->finish(*generation.record->finished);
  generation.stream->end({});
}

void Scheduler::gather_prompt(Generation& generation) {
  const Session& session = *generation.samples[0].session;
  Rewinds& rewinds = sessions_.rewinds();
  if (!rewinds.ready(session)) return;
  candidates_.push_back(
      {.want = Want::kNothing,
       .owner = gather_owner(*generation.turns),
       .served = generation.served,
       .inputs = std::min(std::ssize(generation.unfed()), rewinds.most_inputs(session)),
       .position = session.position - 1,
       .since = generation.admitted});
  subjects_.push_back({.generation = &generation});
}

void Scheduler::gather_samples(Generation& generation) {
  const int ahead = generation.ahead();
  const int room = (generation.stream->room() - ahead) / generation.live_samples();
  if (room == 0) {
    if (ahead == 0) note_stall(generation);
    return;
  }
  generation.stalled_since.reset();
  for (size_t i = 0; i < generation.samples.size(); ++i) {
    const Sample& sample = generation.samples[i];
    if (sample.finished || sample.remaining <= sample.ahead) continue;
    if (!sessions_.rewinds().ready(*sample.session)) continue;
    candidates_.push_back({.want = Want::kNext,
                           .owner = gather_owner(*generation.turns),
                           .served = sample.served,
                           .inputs = 1,
                           .room = room,
                           .single_step = generation.may_stop(model_.spec())});
    subjects_.push_back({.generation = &generation, .sample = static_cast<int>(i)});
  }
}

void Scheduler::gather_score(ScoreCall& call) {
  Rewinds& rewinds = sessions_.rewinds();
  if (!rewinds.ready(*call.session)) return;
  candidates_.push_back(
      {.want = call.silent ? Want::kNothing : Want::kScores,
       .owner = gather_owner(*call.turns),
       .served = call.served,
       .inputs = std::min(std::ssize(call.unfed()), rewinds.most_inputs(*call.session)),
       .position = call.session->position - 1,
       .since = call.came});
  subjects_.push_back({.score = &call});
}

// The stream has no room: the generation is left out until its reader makes some.
void Scheduler::note_stall(Generation& generation) {
  if (!generation.stalled_since) generation.stalled_since = now_;
  generation.stream->starve();
}

// Notes who has a share of this plan, for the turns of the next.
void Scheduler::note_served() {
  for (const Share& share : plan_.shares) {
    const Subject& subject = subjects_[share.candidate];
    const bool feeds = candidates_[share.candidate].want != Want::kNext;
    OwnerTurns& turns = turns_of(subject);
    turns.owner.served = ++shares_;
    if (feeds) turns.owner.fed = shares_;
    uint64_t& served = subject.score ? subject.score->served
                       : feeds       ? subject.generation->served
                                     : subject.generation->samples[subject.sample].served;
    served = shares_;
  }
}

// --- The step ---

// Submits the plan, behind the launches that are on their way.
void Scheduler::submit() {
  Launch& launch = launches_[on_their_way_];
  launch.parts.clear();
  launch.steps = plan_.steps;
  rows_.clear();
  for (const Share& share : plan_.shares) {
    const Subject& subject = subjects_[share.candidate];
    const Want want = candidates_[share.candidate].want;
    launch.parts.push_back({subject, want, share.inputs});
    if (want == Want::kNext) {
      Sample& sample = subject.generation->samples[subject.sample];
      sample.ahead += plan_.steps;
      rows_.push_back({sample.session->slot, {}, want});
    } else if (subject.score != nullptr) {
      const auto values = subject.score->unfed().first(share.inputs);
      rows_.push_back({subject.score->session->slot, values, want});
    } else {
      const auto values = subject.generation->unfed().first(share.inputs);
      rows_.push_back({subject.generation->samples[0].session->slot, values, want});
    }
  }
  launch.submitted = clock_.now();
  launch.ticket = model_.submit(rows_, plan_.steps);
  ++on_their_way_;
}

// Whether the next turn can go without the values of this plan. Not where prompts advance, a value
// may end a sample, or snapshots stand between steps.
bool Scheduler::may_stay_on_its_way() const {
  const auto only_samples = [](const Candidate& candidate) {
    return candidate.want == Want::kNext && !candidate.single_step;
  };
  return !plan_.shares.empty() && !sessions_.rewinds().on() &&
         std::ranges::all_of(candidates_, only_samples);
}

// Hands out what all launches on their way come to, but for the last ones.
void Scheduler::settle(int but) {
  while (on_their_way_ > but) {
    Launch& launch = launches_.front();
    const Status status = collect(launch.ticket);
    now_ = clock_.now();
    if (!status.ok()) return fail(status);
    note_step(launch);
    hand_out(launch);
    std::rotate(launches_.begin(), launches_.begin() + 1, launches_.end());
    --on_their_way_;
  }
}

void Scheduler::hand_out(const Launch& launch) {
  for (const Launch::Part& part : launch.parts) {
    if (part.want != Want::kNext) continue;
    part.subject.generation->samples[part.subject.sample].ahead -= launch.steps;
  }
  for (const Emitted& emitted : emitted_) hand_out(launch.parts[emitted.row].subject, emitted);
  count_gaps();
  for (const Launch::Part& part : launch.parts) {
    if (part.want != Want::kNext) advance(part.subject, part.inputs);
  }
}

// Counts the steps of a launch, which began when the one before had ended.
void Scheduler::note_step(const Launch& launch) {
  const Duration elapsed = now_ - std::max(launch.submitted, collected_);
  collected_ = now_;
  int64_t values = 0;
  for (const Launch::Part& part : launch.parts) values += part.inputs;
  metrics_.step_time.observe(elapsed / launch.steps, launch.steps);
  metrics_.step_rows.observe(std::ssize(launch.parts), launch.steps);
  metrics_.step_values.observe(values, launch.steps);
}

// Notes the time between two values of a sample. Most of a step are equal, and counted together.
void Scheduler::note_gap(Duration gap) {
  if (gap != gap_) count_gaps();
  gap_ = gap;
  ++gaps_;
}

void Scheduler::count_gaps() {
  if (gaps_ > 0) metrics_.value_gap.observe(gap_, gaps_);
  gaps_ = 0;
}

// Waits for the device. One that does not answer in time cannot serve: the process stops.
Status Scheduler::collect(Ticket ticket) {
  const TimePoint started = std::chrono::steady_clock::now();
  emitted_.clear();
  while (true) {
    const Result<bool> done = model_.collect(ticket, emitted_);
    if (!done.ok()) return done.status();
    if (*done) return {};
    check(std::chrono::steady_clock::now() - started < kStepTimeout, "the device answers in time");
    std::this_thread::yield();
  }
}

// The device has failed, and with it every state: ends all calls. From here on new ones are
// refused, so that no step follows.
void Scheduler::fail(const Status& reason) {
  const Status status = device_failed(model_.spec().name, reason);
  {
    std::lock_guard lock(status_mutex_);
    failure_ = status;
  }
  failed_.store(true, std::memory_order_release);
  on_their_way_ = 0;  // they come to nothing
  end_every_call(status);
}

void Scheduler::hand_out(const Subject& subject, const Emitted& emitted) {
  if (subject.score != nullptr) {
    subject.score->scored.log_probs.push_back(emitted.log_prob);  // reserved for the message
    return;
  }
  metrics_.values_sampled.add();
  Sample& sample = subject.generation->samples[subject.sample];
  if (sample.last_value) note_gap(now_ - *sample.last_value);
  sample.last_value = now_;
  charge(turns_of(subject), 1);
  const auto reason = take_value(*subject.generation, subject.sample, emitted, model_.spec(), now_);
  sessions_.rewinds().note(*sample.session, {&emitted.value, 1});
  if (reason) finish_sample(*subject.generation, subject.sample, *reason);
}

// A prompt or a Score call has consumed `inputs` more of its values.
void Scheduler::advance(const Subject& subject, int inputs) {
  metrics_.values_consumed.add(inputs);
  charge(turns_of(subject), inputs);
  if (subject.score != nullptr) {
    ScoreCall& call = *subject.score;
    sessions_.know(*call.session, call.unfed().first(inputs));
    call.fed += inputs;
    if (call.unfed().empty()) call.complete(std::move(call.scored), now_);
    return;
  }
  Generation& generation = *subject.generation;
  Session& session = *generation.samples[0].session;
  sessions_.know(session, generation.unfed().first(inputs));
  generation.fed += inputs;
  if (generation.unfed().empty()) start_sampling(generation);
}

// --- Endings ---

void Scheduler::end_calls() {
  std::optional<Status> all;
  {
    std::lock_guard lock(status_mutex_);
    all.swap(end_all_);
  }
  if (all) end_every_call(*all);
  for (const auto& generation : generations_) {
    if (!generation->ended()) end_if_due(*generation);
  }
  for (const auto& call : scores_) {
    if (call->over()) continue;
    if (call->cancelled.load(std::memory_order_acquire)) {
      end_score(*call, {Code::kCancelled, "the call was cancelled"});
    }
    if (call->waits(now_) >= options_.idle_timeout) {
      end_score(*call, {Code::kAborted,
                        "the call has waited for messages for too long in all; send them sooner, "
                        "or start a new call from a session"});
    }
  }
  forget_ended();
}

void Scheduler::end_every_call(const Status& status) {
  for (const auto& generation : generations_) {
    if (!generation->ended()) end_generation(*generation, status);
  }
  for (const auto& call : scores_) end_score(*call, status);
  end_queued([&](const QueuedCall&) { return status; });
  end_moves(status);
}

// Ends a generation that is cancelled, stalled or out of time.
void Scheduler::end_if_due(Generation& generation) {
  if (generation.stream->cancelled()) {
    end_generation(generation, {Code::kCancelled, "the call was cancelled"});
    return;
  }
  // The room is asked for again: gather() has not yet seen what was read since then.
  if (generation.stalled_since && now_ - *generation.stalled_since >= options_.stall_timeout &&
      generation.stream->room() < std::max(1, generation.live_samples())) {
    end_generation(generation, {Code::kAborted,
                                "the stream was not read for too long; the sequence stands at the "
                                "last value sampled"});
    return;
  }
  // A record is sent completely, however late, unless its session has let go of it: nothing else
  // counts what it holds.
  if (generation.phase == GenerationPhase::kResending) {
    if (generation.record.use_count() > 1) return;
    end_generation(generation, {Code::kAborted,
                                "the session has ended, or has gone on with another call, before "
                                "all of this one was sent again"});
    return;
  }
  const auto max_time = generation.request.max_time;
  if (!max_time || now_ - generation.admitted < *max_time) return;
  settle(0);
  if (generation.ended()) return;
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
  // Frees the slot before the client hears of the end: it may call again at once.
  give_back(sample);
  generation.stream->finish(finished);
  if (generation.record) generation.record->finished = finished;
  if (generation.live_samples() > 0) return;
  generation.apply(GenerationEvent::kEnd);
  generation.stream->end({});
}

void Scheduler::end_generation(Generation& generation, Status status) {
  settle(0);
  if (generation.ended()) return;
  for (Sample& sample : generation.samples) {
    if (sample.session != nullptr) give_back(sample);
  }
  generation.apply(GenerationEvent::kEnd);
  generation.stream->end(std::move(status));
}

void Scheduler::give_back(Sample& sample) {
  sessions_.give_back(*std::exchange(sample.session, nullptr), now_);
}

void Scheduler::end_score(ScoreCall& call, Status status) {
  if (call.over()) return;
  call.end = status;
  if (call.session != nullptr) {
    sessions_.give_back(*std::exchange(call.session, nullptr), now_);
  }
  call.turns.reset();
  call.complete(std::move(status), now_);
}

void Scheduler::forget_ended() {
  for (const auto& generation : generations_) {
    if (generation->ended() && generation->record) generation->record->shrink();
  }
  std::erase_if(generations_, [](const auto& generation) { return generation->ended(); });
  std::erase_if(scores_, [](const auto& call) { return call->over(); });
  std::erase_if(turns_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

}  // namespace runnel
