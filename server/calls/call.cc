#include "server/calls/call.h"

#include <utility>

#include "base/text.h"
#include "base/within_memory.h"

namespace runnel {

Call::Call(ServerContext& state, CallStart start, CallSink& sink)
    : state_(state), start_(std::move(start)), sink_(sink) {}

void Call::enter() {
  const Status status = within_memory([this] {
    state_.calls.enter(shared_from_this());
    return Status();
  });
  if (!status.ok()) refuse(status);
}

Status Call::admit() {
  if (!start_.caller.ok()) return start_.caller.status();
  std::lock_guard lock(mutex_);
  return over_ ? *over_ : quota_.begin(caller());
}

Result<std::shared_ptr<const ServedModel>> Call::find_model(const std::string& name) {
  auto model = state_.models.find(caller(), name);
  if (model.ok()) set_model(*model);
  return model;
}

void Call::end_quota() {
  std::lock_guard lock(mutex_);
  quota_.end();
}

// --- Ends ---

void Call::end(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (!ending_) ending_ = status;
  }
  resume();
}

// Cuts off an event that the client has not taken for too long. The engine ends the stream of such
// a client earlier, so only this event is left of the call. Also ends the call if the client sends
// nothing for too long, because the call holds a state.
void Call::tend(TimePoint now) {
  if (const Status status = check_rights(); !status.ok()) fail(status);
  {
    std::lock_guard lock(mutex_);
    if (writing_since_ && now - *writing_since_ >= 2 * state_.stall_timeout) sink_.cut_off();
    if (!reading_since_ || over_) return;
    const Duration waits = now - *reading_since_;
    if (waits >= state_.stall_timeout) {
      over_ = {Code::kAborted,
               "no chunk came for too long; send the next one sooner, or half-close"};
    } else if (read_ + waits >= most_read_) {
      over_ = {Code::kAborted,
               "the call has waited for messages for too long in all; send them sooner"};
    } else {
      return;
    }
  }
  resume();
}

// Whether the current keys still permit this call.
Status Call::check_rights() const {
  if (!start_.caller.ok()) return {};
  const auto now = state_.callers.as_of_now(caller());
  if (now == nullptr) {
    Status status(Code::kUnauthenticated, "the key of this call has been taken away");
    return status.with_reason("key");
  }
  if (now->name != caller().name) {
    Status status(Code::kUnauthenticated, "the key of this call now belongs to another name");
    return status.with_reason("key");
  }
  const auto used = model();
  // A key whose models have not changed keeps its calls, even if an alias now leads elsewhere.
  if (used == nullptr || now->models == caller().models) return {};
  if (state_.models.may_use(*now, used->name)) return {};
  Status status(Code::kPermissionDenied,
                "the key of this call may no longer use model " + quote(used->name));
  return status.with_reason("key");
}

void Call::fail(const Status& status) {
  stop(status);
  resume();
}

// Ends the call with `status`, unless it has ended already. Does not tell the client.
void Call::stop(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (!over_) over_ = status;
  }
  release();
}

void Call::finish(const Status& status) {
  // The state is released before the client gets the end of the call, so that the client's next
  // call finds it.
  stop(status);
  end_quota();
  {
    std::lock_guard lock(mutex_);
    progress_.given = given_;
  }
  report(state_, start_, model().get(), progress_, status);
  sink_.finish(status);
}

std::optional<Status> Call::over() const {
  std::lock_guard lock(mutex_);
  return over_;
}

std::optional<Status> Call::ending() const {
  std::lock_guard lock(mutex_);
  return ending_;
}

void Call::on_end(std::function<void()> release) {
  {
    std::lock_guard lock(mutex_);
    if (!over_) {
      release_ = std::move(release);
      return;
    }
  }
  release();
}

void Call::release() {
  std::function<void()> release;
  {
    std::lock_guard lock(mutex_);
    release.swap(release_);
  }
  if (release) release();
}

// --- Turns ---

void Call::resume() {
  if (take_turn()) pump();
}

void Call::wake() {
  if (take_turn()) state_.writer.post<&Call::pump>(shared_from_this());
}

std::function<void()> Call::waker() {
  return [weak = weak_from_this()] {
    if (const auto call = weak.lock()) call->wake();
  };
}

// True if the calling thread now has the turn. Otherwise the thread that has it will look again.
bool Call::take_turn() {
  std::lock_guard lock(mutex_);
  word_left_ = true;
  return !std::exchange(turn_taken_, true);
}

// False if take_turn() was called in the meantime. The calling thread then keeps the turn.
bool Call::give_turn_back() {
  std::lock_guard lock(mutex_);
  if (std::exchange(word_left_, false)) return false;
  turn_taken_ = false;
  return true;
}

// Runs with the turn, until an event has been given to the sink, the call has ended, or nothing is
// due. After the end of the call, the turn is never given back.
void Call::pump() {
  const auto self = shared_from_this();  // the door may leave as soon as it has an event
  do {
    if (const auto status = over()) return finish(*status);
    const Step step = within_memory([this] { return next(); });
    if (std::holds_alternative<Writing>(step)) return;
    if (const auto* status = std::get_if<Status>(&step)) return finish(*status);
  } while (!give_turn_back());
}

void Call::begin_write() {
  std::lock_guard lock(mutex_);
  writing_since_ = state_.clock.now();
}

void Call::written(bool ok) {
  {
    std::lock_guard lock(mutex_);
    writing_since_.reset();
  }
  if (!ok) stop({Code::kCancelled, "the call was cancelled"});
  pump();
}

void Call::begin_read() {
  std::lock_guard lock(mutex_);
  reading_since_ = state_.clock.now();
}

bool Call::end_read() {
  std::lock_guard lock(mutex_);
  if (reading_since_) read_ += state_.clock.now() - *reading_since_;
  reading_since_.reset();
  return !over_;
}

// --- The report ---

void Call::set_model(std::shared_ptr<const ServedModel> model) {
  std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

std::shared_ptr<const ServedModel> Call::model() const {
  std::lock_guard lock(mutex_);
  return model_;
}

void Call::note_given(int64_t values) {
  std::lock_guard lock(mutex_);
  given_ += values;
}

void Call::note_values(int64_t sampled) {
  if (!progress_.first) progress_.first = state_.clock.now() - start_.came;
  progress_.sampled += sampled;
}

}  // namespace runnel
