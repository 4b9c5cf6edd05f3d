#include "server/host/stored_session.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/fields.h"
#include "base/text.h"
#include "base/within_memory.h"
#include "engine/refusals.h"
#include "models/state/file.h"
#include "server/host/call_answer.h"
#include "server/host/kept_sessions.h"
#include "server/host/save_file.h"
#include "server/host/server_context.h"
#include "server/host/session_refusals.h"
#include "storage/record_key.h"

namespace runnel {
namespace {

// The number of scheduler turns that a save waits for another copy of the session's state.
constexpr int kMostTries = 10000;
constexpr int kMostLooks = 3;
// A call that has run is saved even if the engine has no room for new calls.
constexpr bool kAdmitted = true;
constexpr bool kKeepsSubnormal = true;

bool is_resting(const SessionInfo& info) {
  return info.state == SessionPhase::kNew || info.state == SessionPhase::kIdle;
}

// Lets the engine evict its copy while no call needs it. Without memory for this, the engine keeps
// the copy.
void mark_saved(Engine& engine, const SessionKey& session, int64_t position) {
  static_cast<void>(within_memory([&] {
    engine.mark_saved(session, position);
    return Status();
  }));
}

// The call was saved before, so the engine must resend its values or refuse the call.
void read_call(KeptSessions& kept, const ServedModel& model, const SessionUse& use,
               const Record& record, StoredCall& call) {
  call.refusal = values_not_kept(use.id, record);
  if (record.answer.text.empty()) return;
  auto answer = within_memory([&] { return read_answer(record, model.engine->spec()); });
  if (answer.ok()) {
    call.before = std::move(*answer);
    return;
  }
  const Status& status = answer.status();
  call.refusal = kept.failed(
      {status.code(), "the stored answer to this call on session " + quote(use.id) +
                          " cannot be used: " + status.message() + "; the session is at position " +
                          std::to_string(record.position)});
}

}  // namespace

Status unless_given_up(Status status) {
  if (status.code() != Code::kNotFound) return status;
  status = {Code::kAborted, "the state of the session made room for another one; try again"};
  return status.with_retry_after(std::chrono::milliseconds(100));
}

StoredSession::StoredSession(KeptSessions& kept, std::shared_ptr<const ServedModel> model,
                             Caller caller, SessionUse use)
    : kept_(kept),
      model_(std::move(model)),
      caller_(std::move(caller)),
      use_(std::move(use)),
      key_(record_key(model_->state_digest, caller_.name, use_.id)),
      owner_(kept.store().replica() + "/" + model_->name),
      seed_(use_.seed) {}

StoredSession::~StoredSession() {
  try {
    kept_.release(*this);
    if (!opened_ && !saved_) return;
    Status status(Code::kResourceExhausted,
                  "the server has no memory for this call; try again later");
    status.with_reason("memory");
    if (opened_) opened_(status);
    if (saved_) saved_(status);
  } catch (const std::bad_alloc&) {  // the call waits until its client gives up
  }
}

// Reserves memory for the state and its file's header while it is saved, plus `beside` bytes.
Status StoredSession::take_room(int64_t beside) {
  const int64_t saving = bytes_to_save(*model_->engine);
  MemoryBudget::shrink(*room_, saving);
  return kept_.context().memory.grow(*room_, saving + beside);
}

// --- Opening ---

void StoredSession::open(Done done) {
  opened_ = std::move(done);
  if (!use_.changes) return look();
  if (Status s = take_room(0); !s.ok()) return finish_opening(s);
  const Claim claim = {.owner = owner_,
                       .request = use_.request,
                       .seed = static_cast<int64_t>(use_.seed),
                       .is_seed_given = use_.is_seed_given,
                       .expected_position = use_.expected_position,
                       .after_cut_off = use_.after_cut_off};
  const auto self = shared_from_this();
  begins_ = true;
  kept_.threads().run<Begun>(
      [self, claim] {
        auto begun = self->kept_.store().begin(self->key_, claim);
        self->begins_ = false;
        const bool begins = begun.ok() && begun->outcome == FenceOutcome::kOk;
        if (begins && begun->repeats) {
          read_call(self->kept_, *self->model_, self->use_, begun->before, *self->call_);
        }
        return begun;
      },
      [self](const Result<Begun>& begun) { self->take_begun(begun); },
      [self](const Begun& begun) {  // the store has answered too late
        if (begun.outcome != FenceOutcome::kOk) return;
        const Holder late = {self->owner_, begun.epoch, begun.before.begun, begun.before.seed};
        static_cast<void>(self->kept_.store().end(self->key_, late, nullptr));
      });
}

void StoredSession::look() {
  const auto self = shared_from_this();
  kept_.threads().run<std::optional<Record>>(
      [self] { return self->kept_.store().look(self->key_); },
      [self](const Result<std::optional<Record>>& found) {
        if (!found.ok()) return self->give_up(self->kept_.failed(found.status()));
        if (*found) {
          self->record_ = **found;
          return self->check_copy();
        }
        const auto named = self->use_.field.empty() ? fields::kSession : self->use_.field;
        self->drop_copy([self, named](const Status& dropped) {
          self->finish_opening(dropped.ok() ? no_session(self->use_.id, named) : dropped);
        });
      });
}

void StoredSession::take_begun(const Result<Begun>& begun) {
  if (!begun.ok()) return give_up(kept_.failed(begun.status()));
  record_ = begun->before;
  switch (begun->outcome) {
    case FenceOutcome::kOk:
      hold(begun->epoch);
      seed_ = static_cast<uint64_t>(begun->seed);
      repeats_ = begun->repeats;
      return check_copy();
    case FenceOutcome::kNone: {
      const auto self = shared_from_this();
      return drop_copy([self](const Status& dropped) { self->finish_opening(dropped); });
    }
    case FenceOutcome::kBusy:
    case FenceOutcome::kElsewhere:
    case FenceOutcome::kCutOff:
      break;
  }
  give_up(refusal_of(*begun, use_, kept_.lease()));
}

// From here on, the call has a lease.
void StoredSession::hold(int64_t epoch) {
  std::lock_guard lock(mutex_);
  epoch_ = epoch;
  renewed_ = kept_.context().clock.now();
}

// Uses the engine's copy if it matches the record.
void StoredSession::check_copy() {
  const auto take = [self = shared_from_this()](const Result<SessionInfo>& here) {
    if (!here.ok() && here.status().code() != Code::kNotFound) return self->give_up(here.status());
    const Record& record = self->record_;
    const KeptSessions::Copy copy = self->kept_.copy_of(self->key_);
    const bool is_current = here.ok() && here->position == record.position &&
                            copy.saved == record.saved && copy.model.lock() == self->model_;
    self->is_replay_ = !record.log.empty() && !(is_current && copy.is_ours);
    // The record may have no answer. Then only the server that made the call has its values, and
    // only while it keeps the session.
    const bool has_values = self->call_->before != nullptr || (is_current && copy.is_ours);
    if (self->repeats_ && !has_values) {
      const auto refuse = [self](const Status&) { self->give_up(self->call_->refusal); };
      if (here.ok() && !is_current) return self->drop_copy(refuse);
      if (is_current) mark_saved(*self->model_->engine, self->session(), record.position);
      return refuse({});
    }
    if (is_current) return self->finish_opening({});
    if (!here.ok()) return self->load();
    self->drop_copy(
        [self](const Status& dropped) { dropped.ok() ? self->load() : self->give_up(dropped); });
  };
  if (use_.changes) return model_->engine->hold_session(session(), take);
  model_->engine->get_session(session(), take);
}

// Deletes the engine's copy, if there is one.
void StoredSession::drop_copy(Done done) {
  model_->engine->delete_session(session(), [done = std::move(done)](const Status& deleted) {
    done(deleted.code() == Code::kNotFound ? Status() : deleted);
  });
}

void StoredSession::load() {
  if (Status s = take_room(kStateHeaderMemory); !s.ok()) return give_up(s);
  const auto self = shared_from_this();
  kept_.threads().run_in_pieces<Stored>(
      [self, room = room_](const StoreThreads::Progress& progress) mutable {
        const auto held = std::move(room);
        return self->read_stored(progress);
      },
      [self](const Result<Stored>& stored) {
        // A call that only reads does not prevent others from replacing the state.
        const bool again = stored.status().code() == Code::kNotFound && self->epoch_ == 0;
        if (again && ++self->tries_ < kMostLooks) return self->look();
        if (again) return self->give_up(state_was_replaced(self->use_.id));
        if (!stored.ok()) return self->give_up(self->kept_.failed(stored.status()));
        static_cast<void>(self->take_room(0));  // shrinking cannot fail
        const auto made = [self, replay = stored->replay](const auto& session) {
          self->take_made(session.status(), replay);
        };
        Engine& engine = *self->model_->engine;
        if (stored->image == nullptr) {
          return engine.create_session(self->caller_, self->use_.id, made);
        }
        engine.import_session(self->caller_, self->use_.id, stored->image, made);
      });
}

void StoredSession::take_made(const Status& made, const std::shared_ptr<Replay>& replay) {
  if (!made.ok()) return give_up(made);
  if (replay != nullptr) {
    return replay->start([self = shared_from_this()](const Status& status) {
      if (status.ok()) return self->take_made({}, nullptr);
      self->drop_copy([self, status](const Status&) { self->give_up(status); });
    });
  }
  kept_.note_copy(key_, {.model = model_, .saved = record_.saved});
  finish_opening({});
}

// Reads the state, and the log that follows it.
Result<StoredSession::Stored> StoredSession::read_stored(
    const StoreThreads::Progress& progress) const {
  const auto unusable = [this](const Status& status, const char* what) {
    const bool damaged = status.code() == Code::kInvalidArgument;
    return Status(damaged ? Code::kDataLoss : status.code(),
                  std::string("the stored ") + what + " of session " + quote(use_.id) +
                      " cannot be used: " + status.message());
  };
  Stored stored;
  auto calls = read_log(record_, model_->engine->numerics());
  if (!calls.ok()) return unusable(calls.status(), "log");
  if (!calls->empty()) {
    stored.replay = std::make_shared<Replay>(kept_, model_, session(), std::move(*calls));
  }
  if (record_.state == 0) return stored;
  auto image = read_state(progress);
  if (image.status().code() == Code::kNotFound) return epoch_ == 0 ? image.status() : missing();
  if (!image.ok()) return unusable(image.status(), "state");
  stored.image = std::make_shared<StateImage>(std::move(*image));
  return stored;
}

Result<StateImage> StoredSession::read_state(const StoreThreads::Progress& progress) const {
  const ServerContext& context = kept_.context();
  const SealKeys* const keys = context.seal_keys ? &*context.seal_keys : nullptr;
  const StateTarget target = {.spec = model_->engine->spec(),
                              .layout = model_->engine->layout(),
                              .model = model_->state_digest,
                              .needs_seal = kept_.store().needs_seals(),
                              .keys = keys,
                              .caller = caller_.name,
                              .now = context.clock.unix_time()};
  StateReader reader(
      [&target](const StateHeader& header) {
        const Status status = check_state(header, target);
        return status.ok() ? Result<StateLayout>(target.layout) : Result<StateLayout>(status);
      },
      keys, kKeepsSubnormal);
  const Status loaded = kept_.store().load(key_, record_, [&](auto bytes) {
    progress();
    return reader.add(bytes);
  });
  if (!loaded.ok()) return loaded;
  Result<StateImage> image = reader.finish();
  if (image.ok() && image->position != record_.state_at) {
    return Status(Code::kDataLoss, "it is of another position");
  }
  return image;
}

// Nobody replaces a state while this call holds the session.
Status StoredSession::missing() const {
  const auto held = kept_.store().renew(key_, {owner_, epoch_});
  if (held.ok() && !*held) return lost_session(use_.id);
  return {Code::kDataLoss, "the stored state of session " + quote(use_.id) + " is missing"};
}

// The holder to end the call with if the session was not saved. If the call has run, the record
// then names it as the call that was cut off. If it has not run, the record still names an earlier
// call that was cut off.
Holder StoredSession::holder(bool has_run) const {
  if (!has_run) return {owner_, epoch_, record_.begun, record_.seed};
  return {owner_, epoch_, use_.request, static_cast<int64_t>(seed_)};
}

// The call does not begin, so others may.
void StoredSession::give_up(const Status& status) {
  if (epoch_ == 0) return finish_opening(status);
  const auto self = shared_from_this();
  kept_.threads().run<bool>(
      [self] { return self->kept_.store().end(self->key_, self->holder(false), nullptr); },
      [self, status](const Result<bool>&) { self->finish_opening(status); });
}

void StoredSession::finish_opening(const Status& status) {
  if (status.ok()) {
    // The call may run for hours. It needs the size of the log, but not its text, and no answer.
    // After a failure, a late job may still read them.
    for (const std::string& entry : record_.log) log_bytes_ += std::ssize(entry);
    log_calls_ = std::exchange(record_.log, {}).size();
    record_.answer.text = {};
  }
  {
    std::lock_guard lock(mutex_);
    stage_ = status.ok() ? Stage::kOpen : Stage::kEnded;
  }
  if (!status.ok() || !use_.changes) {
    if (status.ok()) mark_saved(*model_->engine, session(), record_.position);
    room_.reset();
    begins_ ? kept_.begins_late(*this) : kept_.release(*this);
  }
  std::exchange(opened_, nullptr)(status);
}

Status StoredSession::adopt(bool empty) {
  if (Status s = take_room(0); !s.ok()) return s;
  std::lock_guard lock(mutex_);
  empty_ = empty;
  stage_ = Stage::kOpen;
  return {};
}

void StoredSession::prepare(GenerateRequest& request) const {
  request.seed = seed_;
  request.stored = call_;
}

// --- Ending ---

// Returns true once, if the call may end the session.
bool StoredSession::begin_ending() {
  {
    std::lock_guard lock(mutex_);
    if (stage_ != Stage::kOpen && stage_ != Stage::kLost) return false;
    if (stage_ == Stage::kOpen) {
      stage_ = Stage::kEnding;
      kept_.ends_soon(*this);
      return true;
    }
  }
  finish(lost_session(use_.id));
  return false;
}

void StoredSession::save(Done done, const std::optional<LoggedCall>& call) {
  saved_ = std::move(done);
  image_ = std::make_shared<StateImage>();
  if (!begin_ending()) return;
  if (empty_) return take_exported({});
  if (repeats_ && record_.answer.has_ended) {  // its values were resent, and nothing else happened
    position_ = record_.position;
    return end_unsaved({});
  }
  std::optional<LogEntry> entry = entry_of(call);
  entry ? log(std::move(*entry)) : make_image();
}

// Returns none if the call needs a state: if it cannot be recomputed from the record's position, or
// the log is full. A log that had to be replayed is not extended, so that no call is replayed
// twice.
std::optional<LogEntry> StoredSession::entry_of(const std::optional<LoggedCall>& call) {
  const Engine& engine = *model_->engine;
  if (!call || epoch_ == 0 || is_replay_ || call->before != record_.position) return {};
  if (kept_.log_bytes() == 0 || engine.batch_changes_bits()) return {};
  LogEntry entry = {call->after, log_text(*call, engine.numerics())};
  const bool fits = log_bytes_ + std::ssize(entry.text) <= kept_.log_bytes() &&
                    log_calls_ < kMostLogEntries &&
                    call->after - record_.state_at <= kMostLogValues;
  if (fits) return entry;
  reason_ = SnapshotReason::kFull;
  return {};
}

void StoredSession::log(LogEntry entry) {
  is_logged_ = true;
  position_ = entry.position;
  const auto self = shared_from_this();
  kept_.threads().run<int64_t>(
      [self, entry = std::move(entry), call = call_->record.lock()]() -> Result<int64_t> {
        Holder holder = self->holder(true);
        holder.answer = answer_of(call.get(), self->kept_.answer_bytes());
        const auto logged = self->kept_.store().log(self->key_, holder, entry);
        if (!logged.ok()) return logged.status();
        return *logged ? self->epoch_ : 0;
      },
      [self](const Result<int64_t>& saved) { self->take_saved(saved); });
}

void StoredSession::end_unheard() {
  if (begin_ending()) end_if_unchanged();
}

void StoredSession::end_if_unchanged() {
  const auto self = shared_from_this();
  model_->engine->get_session(
      session(),
      [self](const Result<SessionInfo>& here) {
        if (here.ok() && !is_resting(*here) && ++self->tries_ < kMostTries) {
          return self->end_if_unchanged();  // the call ends within a turn or two
        }
        const bool changed =
            here.ok() && (self->epoch_ == 0 || here->position != self->record_.position);
        if (changed) return self->make_image();
        self->position_ = self->record_.position;
        self->end_unsaved({});
      },
      kAdmitted);
}

// Not on the scheduler's thread, which has no time to allocate this much memory.
void StoredSession::make_image() {
  const auto self = shared_from_this();
  kept_.threads().run<std::shared_ptr<StateImage>>(
      [bytes = model_->engine->state_bytes()]() -> Result<std::shared_ptr<StateImage>> {
        auto image = std::make_shared<StateImage>();
        image->bytes.resize(static_cast<size_t>(bytes));
        return image;
      },
      [self](const Result<std::shared_ptr<StateImage>>& image) {
        if (!image.ok()) return self->take_saved(image.status());
        self->image_ = *image;
        self->export_state();
      });
}

void StoredSession::export_state() {
  const auto self = shared_from_this();
  model_->engine->export_session(
      session(), image_,
      [self](const auto& moved) {
        // A client may be exporting the state at the same time.
        const bool busy = moved.status().code() == Code::kAborted;
        if (busy && ++self->tries_ < kMostTries) return self->export_state();
        self->take_exported(moved.status());
      },
      kAdmitted);
}

void StoredSession::take_exported(const Status& status) {
  if (status.code() == Code::kNotFound) {  // it was deleted on this server
    return end_unsaved({Code::kAborted, "session " + quote(use_.id) + " was deleted"});
  }
  if (!status.ok()) return take_saved(status);
  position_ = image_->position;
  const auto self = shared_from_this();
  kept_.threads().run_in_pieces<int64_t>(
      [self, image = image_, call = call_->record.lock(),
       room = room_](const StoreThreads::Progress& progress) mutable {
        const auto held = std::move(room);
        Holder holder = self->holder(true);
        holder.answer = answer_of(call.get(), self->kept_.answer_bytes());
        return self->write_state(std::move(*image), holder, progress);
      },
      [self](const Result<int64_t>& saved) { self->take_saved(saved); });
}

// Returns the epoch with which the state was written; 0 if another call has the session. A job that
// takes too long runs on after this object has continued, so it has its own image.
Result<int64_t> StoredSession::write_state(StateImage image, const Holder& holder,
                                           const StoreThreads::Progress& progress) const {
  const NewSession made = {.owner = owner_,
                           .request = use_.request,
                           .answer = holder.answer,
                           .list = record_list(model_->state_digest, caller_.name),
                           .id = use_.id};
  if (empty_) return kept_.store().create(key_, made, nullptr);
  return save_file(kept_.context(), *model_, caller_.name, std::move(image),
                   [&](Snapshot snapshot) -> Result<int64_t> {
                     snapshot.next = [&progress, next = std::move(snapshot.next)] {
                       progress();
                       return next();
                     };
                     if (epoch_ == 0) return kept_.store().create(key_, made, &snapshot);
                     const auto ended = kept_.store().end(key_, holder, &snapshot);
                     if (!ended.ok()) return ended.status();
                     return *ended ? epoch_ : 0;
                   });
}

void StoredSession::take_saved(const Result<int64_t>& saved) {
  const bool is_saved = saved.ok() && *saved != 0;
  kept_.note_copy(
      key_,
      {.model = is_saved ? model_ : nullptr, .saved = is_saved ? *saved : 0, .is_ours = true});
  if (is_saved) {
    if (is_logged_) kept_.logs().add({key_, session(), model_, *saved, position_});
    if (!is_logged_ && !empty_) kept_.count_snapshot(reason_);
    return finish({});
  }
  Status status = epoch_ == 0 ? session_exists(use_.id, fields::kId) : lost_session(use_.id);
  if (!saved.ok()) {
    status = kept_.failed(
        {saved.status().code(), "the call has run, and session " + quote(use_.id) +
                                    " could not be saved: " + saved.status().message() +
                                    "; make the call again"});
    status.with_retry_after(std::chrono::seconds(1));
  }
  const auto self = shared_from_this();
  drop_copy([self, status](const Status&) { self->end_unsaved(status); });
}

// Lets other calls begin, and reports `status`.
void StoredSession::end_unsaved(const Status& status) {
  if (epoch_ == 0) return finish(status);
  const auto self = shared_from_this();
  const bool has_run = !status.ok();
  kept_.threads().run<bool>(
      [self, has_run] {
        return self->kept_.store().end(self->key_, self->holder(has_run), nullptr);
      },
      [self, status](const Result<bool>&) { self->finish(status); });
}

void StoredSession::finish(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    stage_ = Stage::kEnded;
  }
  image_.reset();
  room_.reset();
  if (status.ok()) mark_saved(*model_->engine, session(), position_);
  // Before the client learns of it, because it may call again at once.
  kept_.release(*this);
  if (const Done done = std::exchange(saved_, nullptr)) return done(status);
  if (!status.ok()) kept_.log_unsaved(use_.id, status);
}

// --- The lease ---

void StoredSession::renew() {
  int64_t epoch = 0;
  {
    std::lock_guard lock(mutex_);
    const TimePoint now = kept_.context().clock.now();
    const bool is_over = stage_ == Stage::kLost || stage_ == Stage::kEnded;
    if (is_over || epoch_ == 0 || now - renewed_ < kept_.lease() / 3) return;
    renewed_ = now;
    epoch = epoch_;
  }
  const auto self = shared_from_this();
  kept_.threads().run<bool>(
      [self, epoch] { return self->kept_.store().renew(self->key_, {self->owner_, epoch}); },
      [self](const Result<bool>& renewed) {
        if (!renewed.ok()) return self->kept_.count_error();
        if (!*renewed) self->lose();
      });
}

bool StoredSession::repeats(const StoredSession& other) const {
  return use_.request.starts_with(kNamedCall) && use_.request == other.use_.request &&
         use_.digest == other.use_.digest;
}

void StoredSession::give_way() const {
  if (use_.on_lost) use_.on_lost(made_again());
}

void StoredSession::lose() {
  {
    std::lock_guard lock(mutex_);
    if (stage_ != Stage::kOpen) return;
    stage_ = Stage::kLost;
    // With the lock held, or this call could end first, and the copy of the next call be deleted.
    kept_.note_copy(key_, {});
    drop_copy([](const Status&) {});
  }
  if (use_.on_lost) use_.on_lost(lost_session(use_.id));
}

}  // namespace runnel
