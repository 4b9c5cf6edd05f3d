#include "engine/scheduler.h"

#include <utility>

#include "engine/account_usage.h"
#include "engine/refusals.h"

namespace runnel {
namespace {

constexpr Duration kWaitWithCalls = std::chrono::milliseconds(50);
constexpr Duration kWaitWithPace = std::chrono::milliseconds(2);
constexpr Duration kMostBehind = std::chrono::seconds(1);  // for an account that makes new calls
constexpr Duration kWaitIdle = std::chrono::seconds(1);
constexpr int64_t kWorkPerTurn = 256;  // units of commands: about a millisecond

}  // namespace

Scheduler::Scheduler(Model& model, const EngineOptions& options, const Clock& clock)
    : clock_(clock),
      mailbox_(static_cast<size_t>(options.mailbox), options.mailbox_bytes),
      time_(clock),
      sessions_(model, options),
      waiting_room_(sessions_, options, time_),
      steps_(model, options, sessions_, time_, metrics_,
             [this](const Status& status) { end_every_call(status); }),
      admission_(model, options, sessions_, waiting_room_, steps_, time_, metrics_),
      moves_(model, sessions_, waiting_room_, steps_, time_) {
  publish();
}

// --- From any thread ---

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
    std::lock_guard lock(end_all_mutex_);
    end_all_ = std::move(status);
  }
  mailbox_.nudge();
}

void Scheduler::drain() {
  draining_.store(true, std::memory_order_release);
  mailbox_.nudge();  // waiting calls are refused at once
}

Status Scheduler::check_pace(const Caller& caller) const {
  if (caller.usage == nullptr) return {};
  const Duration behind = caller.usage->behind(clock_.now());
  if (behind <= kMostBehind) return {};
  return values_used_up(caller.account, caller.usage->values_per_second(), behind);
}

Status Scheduler::refusal() const {
  if (Status s = failure(); !s.ok()) return s;
  return draining_.load(std::memory_order_acquire) ? draining_status() : Status();
}

EngineStats Scheduler::stats() const {
  return {.sessions = sessions_.slots(),
          .sessions_free = sessions_free_.load(std::memory_order_relaxed),
          .slots_by_state = sessions_.slots_by_state(),
          .steps = metrics_.step_time.count(),
          .values_sampled = metrics_.values_sampled.value(),
          .values_consumed = metrics_.values_consumed.value(),
          .waiting = waiting_.load(std::memory_order_relaxed),
          .prefix_bytes = sessions_.prefixes().bytes()};
}

void Scheduler::publish() {
  sessions_free_.store(sessions_.free_slots(), std::memory_order_relaxed);
  waiting_.store(waiting_room_.size(), std::memory_order_relaxed);
  active_calls_.store(steps_.active_calls() + waiting_room_.size(), std::memory_order_release);
}

// --- The turn ---

bool Scheduler::turn() {
  time_.read();
  const size_t waiting = mailbox_.look();
  end_calls();  // so that the commands find the slots that this frees
  const bool asked = run_commands(waiting);
  end_calls();  // so that a call that was cancelled before it came costs no step
  const bool moved = moves_.move_states();
  sessions_.expire(time_.now());
  const bool served = waiting_room_.serve(
      [this] { return refusal(); }, [this](QueuedCall& call) { return admission_.go_on(call); });
  const bool stepped = steps_.step();
  time_.read();
  steps_.finish_turn();
  publish();
  return stepped || asked || moved || served || sessions_.rewinds().copied();
}

void Scheduler::wait() {
  mailbox_.wait(steps_.paces() ? kWaitWithPace : active_calls() > 0 ? kWaitWithCalls : kWaitIdle);
}

// Runs commands up to one turn's amount of work. Commands that came after the calls were ended must
// wait, so that a call that comes after the end of another finds its slot. Returns true if any
// command ran.
bool Scheduler::run_commands(size_t waiting) {
  int64_t work = 0;
  for (size_t i = 0; i < waiting && work < kWorkPerTurn; ++i) {
    const std::optional<Command> command = mailbox_.take();
    command->run(*this);
    work += command->work;
  }
  return waiting > 0;
}

void Scheduler::end_calls() {
  std::optional<Status> all;
  {
    std::lock_guard lock(end_all_mutex_);
    all.swap(end_all_);
  }
  if (all) end_every_call(*all);
  steps_.end_due();
}

void Scheduler::end_every_call(const Status& status) {
  steps_.end_all(status);
  waiting_room_.end_all(status);
  moves_.end_all(status);
}

// --- Commands ---

void Scheduler::admit(GenerateRequest request, const RequestDigest& digest,
                      std::shared_ptr<TokenStream> stream) {
  if (Status s = refusal(); !s.ok()) return stream->end(std::move(s));
  admission_.admit(std::move(request), digest, std::move(stream));
}

void Scheduler::feed_score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
                           ScoredChunk answers, std::function<void(Result<ScoredChunk>)> done) {
  if (Status s = refusal(); !s.ok() && call->feed.session == nullptr) return done(std::move(s));
  admission_.feed(call, std::move(values), std::move(answers), std::move(done));
}

Result<SessionInfo> Scheduler::create_session(SessionKey key, const Caller& caller) {
  if (Status s = refusal(); !s.ok()) return s;
  return admission_.create_session(std::move(key), caller);
}

Result<SessionInfo> Scheduler::get_session(const SessionKey& key) {
  return sessions_.get(key, time_.now());
}

SessionPage Scheduler::list_sessions(const std::string& owner, const std::string& after,
                                     int count) const {
  return sessions_.page(owner, after, count, time_.now());
}

Status Scheduler::delete_session(const SessionKey& key) { return admission_.delete_session(key); }

void Scheduler::fork_session(const SessionKey& parent, const std::vector<std::string>& children,
                             const Caller& caller, MoveDone done) {
  if (Status s = refusal(); !s.ok()) return done(s);
  moves_.fork_session(parent, children, caller, std::move(done));
}

void Scheduler::export_session(const SessionKey& key, std::shared_ptr<StateImage> image,
                               MoveDone done) {
  if (Status s = failure(); !s.ok()) return done(s);
  moves_.export_session(key, std::move(image), std::move(done));
}

void Scheduler::copy_at_rest(const SessionKey& key, std::shared_ptr<StateImage> image,
                             MoveDone done) {
  if (Status s = failure(); !s.ok()) return done(s);
  moves_.copy_at_rest(key, std::move(image), std::move(done));
}

void Scheduler::import_session(const std::string& id, std::shared_ptr<StateImage> image,
                               const Caller& caller, MoveDone done) {
  if (Status s = refusal(); !s.ok()) return done(s);
  moves_.import_session(id, std::move(image), caller, std::move(done));
}

void Scheduler::add_state(const std::string& name, std::shared_ptr<StateImage> image,
                          MoveDone done) {
  if (Status s = refusal(); !s.ok()) return done(s);
  moves_.add_state(name, std::move(image), std::move(done));
}

void Scheduler::rewind_session(const SessionKey& key, int64_t position, const Caller& caller,
                               MoveDone done) {
  if (Status s = refusal(); !s.ok()) return done(s);
  moves_.rewind_session(key, position, caller, std::move(done));
}

}  // namespace runnel
