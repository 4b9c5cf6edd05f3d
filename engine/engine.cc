#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/fields.h"
#include "base/thread_priority.h"
#include "base/within_memory.h"
#include "engine/refusals.h"
#include "engine/scheduler.h"
#include "engine/score_call.h"
#include "engine/validate.h"

namespace runnel {
namespace {

// Listing this number of sessions takes as long as admitting a call.
constexpr int kSessionsPerWork = 32;
constexpr int kValuesPerWork = 1024;

int64_t bytes_of(const std::vector<int32_t>& values) {
  return static_cast<int64_t>(values.size() * sizeof(int32_t));
}

// The slots that the call will certainly lease. A retry may find its session, but only the
// scheduler knows whether it does.
int slots_needed(const GenerateRequest& request) {
  return request.request_id.empty() ? request.slots() : 0;
}

// A name that is too long to be valid is not kept while the call waits.
bool is_too_long(const std::optional<std::string>& state) {
  return state && std::ssize(*state) > kMaxNameLength;
}

// The slots claimed for a call on its way to the scheduler. They are released in any case.
class Claim {
 public:
  explicit Claim(Scheduler& scheduler) : scheduler_(scheduler) {}
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() { give_up(); }

  Status take(int slots) {
    Status status = scheduler_.claim(slots, fields::kSamples);
    if (status.ok()) slots_ = slots;
    return status;
  }
  void give_up() { scheduler_.give_up(std::exchange(slots_, 0)); }

 private:
  Scheduler& scheduler_;
  int slots_ = 0;
};

}  // namespace

Engine::Engine(std::unique_ptr<Model> model, const EngineOptions& options, const Clock& clock,
               bool threaded)
    : model_(std::move(model)),
      options_(options),
      scheduler_(std::make_unique<Scheduler>(*model_, options_, clock)) {
  if (threaded && !clock.is_virtual()) thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  drain();
  stopping_.store(true, std::memory_order_release);
  scheduler_->close();
  if (thread_.joinable()) thread_.join();
  // Refuses the commands that have arrived in the meantime, and ends the calls that still run.
  end_all(shutting_down());
  while (turn()) {
  }
}

void Engine::run() {
  if (options_.computes) compute_behind_others();
  while (!stopping_.load(std::memory_order_acquire)) {
    const Status turned = within_memory([&] {
      if (!scheduler_->turn()) scheduler_->wait();
      return Status();
    });
    if (!turned.ok() && scheduler_->failure().ok()) scheduler_->fail(turned);
  }
}

const Spec& Engine::spec() const { return model_->spec(); }
const std::string& Engine::numerics() const { return model_->layout().numerics; }
DeviceKind Engine::device() const { return model_->device(); }
bool Engine::batch_changes_bits() const { return model_->batch_changes_bits(); }
const StateLayout& Engine::layout() const { return model_->layout(); }
int64_t Engine::state_bytes() const { return model_->layout().state_bytes; }
int64_t Engine::position_bytes() const { return model_->layout().page_bytes / kPagePositions; }
int64_t Engine::rewind_bytes() const { return scheduler_->rewind_bytes(); }
EngineStats Engine::stats() const { return scheduler_->stats(); }
int64_t Engine::most_states(const Caller& caller) const {
  const int64_t share = caller.limits.sessions.value_or(options_.sessions_per_caller);
  const int64_t all = stats().sessions;
  return share == 0 ? all : std::min(share, all);
}
const EngineMetrics& Engine::metrics() const { return scheduler_->metrics(); }
int Engine::active_calls() const { return scheduler_->active_calls(); }
void Engine::nudge() { scheduler_->nudge(); }
Status Engine::failure() const { return scheduler_->failure(); }
void Engine::drain() { scheduler_->drain(); }
void Engine::end_all(Status status) { scheduler_->end_all(std::move(status)); }
bool Engine::turn() { return scheduler_->turn(); }

int Engine::stream_room(int samples) const {
  const int64_t per_sample = std::max(options_.stream_room, int64_t{2} * model_->limits().steps);
  const int64_t room = per_sample * std::clamp<int64_t>(samples, 1, options_.samples);
  return static_cast<int>(std::min<int64_t>(room, std::numeric_limits<int>::max()));
}

Status Engine::generate(GenerateRequest request, std::shared_ptr<TokenStream> stream) {
  if (Status s = scheduler_->refusal(); !s.ok()) return s;
  if (Status s = validate(request, model_->spec(), options_); !s.ok()) return s;
  if (request.penalties) {
    const NamedModel model(model_->spec(), request.model);
    Status s = validate_penalties(*request.penalties, model, model_->limits().recent);
    if (!s.ok()) return s;
  }
  if (is_too_long(request.state)) return no_stored_state(*request.state);
  if (Status s = scheduler_->check_pace(request.caller); !s.ok()) return s;
  request.came = scheduler_->now();
  if (!request.seed) request.seed = seed_of(request.request_id);
  stream->attach([scheduler = scheduler_.get()] { scheduler->nudge(); });
  const auto claim = std::make_shared<Claim>(*scheduler_);
  if (Status s = claim->take(slots_needed(request)); !s.ok()) {
    const bool waits = s.code() == Code::kResourceExhausted && request.max_queue_time > Duration(0);
    if (!waits) return s;
  }
  const int64_t bytes = bytes_of(request);
  if (request.begin) request.prompt.reserve(request.prompt.size() + 1);  // for the first value
  const RequestDigest digest = request.request_id.empty() ? RequestDigest{} : digest_of(request);
  const bool put =
      scheduler_->put({[request = std::move(request), stream = std::move(stream), claim,
                        digest](Scheduler& scheduler) mutable {
                         claim->give_up();
                         scheduler.admit(std::move(request), digest, std::move(stream));
                       },
                       bytes});
  if (put) return {};
  claim->give_up();
  return mailbox_full();
}

Result<std::shared_ptr<ScoreCall>> Engine::start_score(const Caller& caller, const Origin& origin,
                                                       bool begin, bool keep,
                                                       Duration max_queue_time, int top_log_probs,
                                                       std::function<void()> accepted) {
  if (Status s = scheduler_->refusal(); !s.ok()) return s;
  if (keep && !origin.session) {
    return invalid_argument(place_of(fields::kKeep) +
                            " needs a session to keep the values: create one, and name it in " +
                            place_of(fields::kSession));
  }
  if (is_too_long(origin.state)) return no_stored_state(*origin.state);
  if (Status s = validate_origin(origin.session, origin.state); !s.ok()) return s;
  if (Status s = validate_queue_time(max_queue_time); !s.ok()) return s;
  if (Status s = validate_top_log_probs(top_log_probs, model_->spec()); !s.ok()) return s;
  if (Status s = scheduler_->check_pace(caller); !s.ok()) return s;
  return std::make_shared<ScoreCall>(caller, origin, begin, keep, max_queue_time, top_log_probs,
                                     std::move(accepted));
}

Status Engine::score(const std::shared_ptr<ScoreCall>& call, std::vector<int32_t> values,
                     std::function<void(Result<ScoredChunk>)> done) {
  if (values.empty())
    return invalid_argument(place_of(fields::kValues) +
                            " is empty; a chunk must have at least one");
  const NamedModel model(model_->spec(), call->origin.model);
  if (Status s = validate_values(values, fields::kValues, options_.prompt_values, model); !s.ok()) {
    return s;
  }
  call->asked = scheduler_->now();
  const int64_t bytes = bytes_of(values);
  const size_t most = values.size() + 1;  // including the model's first value
  if (call->begin) values.reserve(most);
  ScoredChunk answers;
  answers.top_log_probs = call->top_log_probs;
  answers.log_probs.reserve(most);
  answers.top.reserve(most * static_cast<size_t>(call->top_log_probs));
  Scheduler::Command command = {[call, values = std::move(values), answers = std::move(answers),
                                 done = std::move(done)](Scheduler& scheduler) mutable {
                                  scheduler.feed_score(call, std::move(values), std::move(answers),
                                                       std::move(done));
                                },
                                bytes};
  if (call->admitted.load(std::memory_order_acquire)) {
    return scheduler_->put_admitted(std::move(command)) ? Status() : shutting_down();
  }
  return scheduler_->put(std::move(command)) ? Status() : mailbox_full();
}

void Engine::end_score(const std::shared_ptr<ScoreCall>& call) {
  call->cancelled.store(true, std::memory_order_release);
  nudge();
}

void Engine::create_session(const Caller& caller, std::string id,
                            const std::function<void(Result<SessionInfo>)>& done) {
  if (Status s = scheduler_->refusal(); !s.ok()) return done(s);
  if (!id.empty()) {
    if (Status s = validate_session_id(id, fields::kId); !s.ok()) return done(s);
  }
  const bool put =
      scheduler_->put({[key = SessionKey{caller.name, std::move(id)}, caller, done](
                           Scheduler& scheduler) { done(scheduler.create_session(key, caller)); }});
  if (!put) done(mailbox_full());
}

void Engine::get_session(SessionKey key, const std::function<void(Result<SessionInfo>)>& done,
                         bool admitted) {
  if (Status s = validate_session_id(key.id, fields::kId); !s.ok()) return done(s);
  Scheduler::Command command = {
      [key = std::move(key), done](Scheduler& scheduler) { done(scheduler.get_session(key)); }};
  const bool put =
      admitted ? scheduler_->put_admitted(std::move(command)) : scheduler_->put(std::move(command));
  if (!put) done(mailbox_full());
}

void Engine::hold_session(SessionKey key, const std::function<void(Result<SessionInfo>)>& done) {
  if (Status s = validate_session_id(key.id, fields::kId); !s.ok()) return done(s);
  const bool put = scheduler_->put({[key = std::move(key), done](Scheduler& scheduler) {
    scheduler.hold_session(key);
    done(scheduler.get_session(key));
  }});
  if (!put) done(mailbox_full());
}

// If the mailbox is closed, the engine ends, and the session need not be marked.
void Engine::mark_saved(SessionKey key, int64_t position) {
  static_cast<void>(
      scheduler_->put_admitted({[key = std::move(key), position](Scheduler& scheduler) {
        scheduler.mark_saved(key, position);
      }}));
}

void Engine::list_sessions(std::string owner, std::string after, int count,
                           const std::function<void(Result<SessionPage>)>& done) {
  Scheduler::Command command = {
      [owner = std::move(owner), after = std::move(after), count, done](Scheduler& scheduler) {
        done(within_memory(
            [&]() -> Result<SessionPage> { return scheduler.list_sessions(owner, after, count); }));
      }};
  command.work = 1 + count / kSessionsPerWork;
  const bool put = scheduler_->put(std::move(command));
  if (!put) done(mailbox_full());
}

void Engine::delete_session(SessionKey key, const std::function<void(Status)>& done) {
  if (Status s = scheduler_->refusal(); !s.ok()) return done(s);
  if (Status s = validate_session_id(key.id, fields::kId); !s.ok()) return done(s);
  const bool put = scheduler_->put({[key = std::move(key), done](Scheduler& scheduler) {
    done(scheduler.delete_session(key));
  }});
  if (!put) done(mailbox_full());
}

void Engine::fork_session(const Caller& caller, const std::string& parent,
                          std::vector<std::string> children, const MoveDone& done) {
  if (Status s = scheduler_->refusal(); !s.ok()) return done(s);
  if (Status s = validate_session_id(parent, fields::kId); !s.ok()) return done(s);
  if (Status s = validate_children(children, options_); !s.ok()) return done(s);
  const bool put = scheduler_->put(
      {[key = SessionKey{caller.name, parent}, children = std::move(children), caller,
        done](Scheduler& scheduler) { scheduler.fork_session(key, children, caller, done); }});
  if (!put) done(mailbox_full());
}

void Engine::export_session(SessionKey key, std::shared_ptr<StateImage> image, const MoveDone& done,
                            bool admitted) {
  if (Status s = validate_session_id(key.id, fields::kId); !s.ok()) return done(s);
  image->bytes.resize(static_cast<size_t>(state_bytes()));
  Scheduler::Command command = {
      [key = std::move(key), image = std::move(image), done](Scheduler& scheduler) {
        scheduler.export_session(key, image, done);
      }};
  const bool put =
      admitted ? scheduler_->put_admitted(std::move(command)) : scheduler_->put(std::move(command));
  if (!put) done(mailbox_full());
}

void Engine::copy_at_rest(SessionKey key, std::shared_ptr<StateImage> image, const MoveDone& done) {
  const bool put =
      scheduler_->put({[key = std::move(key), image = std::move(image),
                        done](Scheduler& scheduler) { scheduler.copy_at_rest(key, image, done); }});
  if (!put) done(mailbox_full());
}

void Engine::import_session(const Caller& caller, std::string id, std::shared_ptr<StateImage> image,
                            const MoveDone& done) {
  if (Status s = scheduler_->refusal(); !s.ok()) return done(s);
  if (!id.empty()) {
    if (Status s = validate_session_id(id, fields::kId); !s.ok()) return done(s);
  }
  const bool put = scheduler_->put(
      {[id = std::move(id), image = std::move(image), caller, done](Scheduler& scheduler) {
        scheduler.import_session(id, image, caller, done);
      }});
  if (!put) done(mailbox_full());
}

void Engine::rewind_session(const Caller& caller, const std::string& id, int64_t position,
                            const MoveDone& done) {
  if (Status s = scheduler_->refusal(); !s.ok()) return done(s);
  if (Status s = validate_session_id(id, fields::kId); !s.ok()) return done(s);
  if (Status s = validate_rewind(position, options_); !s.ok()) return done(s);
  if (Status s = scheduler_->check_pace(caller); !s.ok()) return done(s);
  Scheduler::Command command = {
      [key = SessionKey{caller.name, id}, position, caller, done](Scheduler& scheduler) {
        scheduler.rewind_session(key, position, caller, done);
      }};
  command.work = 1 + static_cast<int>(options_.rewind_every / kValuesPerWork);
  const bool put = scheduler_->put(std::move(command));
  if (!put) done(mailbox_full());
}

void Engine::add_state(std::string name, std::shared_ptr<StateImage> image, const MoveDone& done) {
  const bool put =
      scheduler_->put({[name = std::move(name), image = std::move(image),
                        done](Scheduler& scheduler) { scheduler.add_state(name, image, done); }});
  if (!put) done(mailbox_full());
}

}  // namespace runnel
