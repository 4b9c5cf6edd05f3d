#include "server/host/kept_sessions.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "base/text.h"
#include "base/within_memory.h"
#include "engine/refusals.h"
#include "server/host/server_context.h"
#include "storage/record_key.h"

namespace runnel {
namespace {

constexpr size_t kMostJobs = 4096;
constexpr size_t kMostWaiting = 64;  // calls that wait for one session
constexpr size_t kMostCopies = size_t{1} << 16;
constexpr int kMostListed = 100;  // sessions in a page: the store is asked for each of them
constexpr auto kSweepEvery = std::chrono::hours(1);

Status busy(const std::string& id) {
  Status status(Code::kAborted,
                "session " + quote(id) + " is busy with another call; wait until that one ends");
  return status.with_retry_after(std::chrono::milliseconds(100));
}

Status unanswered(const std::string& id) {
  Status status(Code::kUnavailable, "the store has not yet answered an earlier call on session " +
                                        quote(id) + "; try again later");
  return status.with_retry_after(std::chrono::seconds(1)).with_reason("storage");
}

// Ends a call's use of its session when the call is deleted, unless save() has ended it.
struct UseGuard {
  explicit UseGuard(std::shared_ptr<StoredSession> used) : session(std::move(used)) {}
  UseGuard(const UseGuard&) = delete;
  UseGuard& operator=(const UseGuard&) = delete;
  ~UseGuard() {
    try {
      session->end_unheard();
    } catch (const std::bad_alloc&) {  // ~StoredSession() releases the session for other calls
    }
  }

  const std::shared_ptr<StoredSession> session;
};

std::shared_ptr<StoredSession> guarded(const std::shared_ptr<StoredSession>& session) {
  return {std::make_shared<UseGuard>(session), session.get()};
}

}  // namespace

KeptSessions::KeptSessions(ServerContext& context, std::shared_ptr<Store> store,
                           const StorageOptions& options)
    : context_(context),
      store_(std::move(store)),
      lease_(std::chrono::milliseconds(options.settings.times.lease_ms)),
      log_bytes_(options.log_bytes),
      answer_bytes_(options.answer_bytes),
      swept_(context.clock.now()),
      threads_(kThreads, kMostJobs, std::chrono::milliseconds(options.settings.times.timeout_ms),
               context.clock),
      replays_(&context.mishaps) {
  sweep();
}

KeptSessions::~KeptSessions() {
  std::map<std::string, Use> left;  // waiting calls look up their use when they end
  std::lock_guard lock(mutex_);
  left.swap(uses_);
}

void KeptSessions::sweep() {
  threads_.run<bool>(
      [this]() -> Result<bool> {
        if (sweeping_.exchange(true)) return true;  // so that a large store keeps one thread busy
        const Status swept = within_memory([&] { return store_->sweep(); });
        sweeping_ = false;
        return swept.ok() ? Result<bool>(true) : Result<bool>(swept);
      },
      [this](const Result<bool>& swept) {
        if (swept.ok() || swept.status().code() == Code::kUnavailable) return;
        context_.log.warn("storage", {{"message", swept.status().message()}});
      });
}

void KeptSessions::open(std::shared_ptr<const ServedModel> model, const Caller& caller,
                        SessionUse use, OpenDone done) {
  enter(std::make_shared<StoredSession>(*this, std::move(model), caller, std::move(use)),
        std::move(done));
}

// Takes the session for the call, or lets the call wait for it.
void KeptSessions::enter(const std::shared_ptr<StoredSession>& session, const OpenDone& done) {
  bool taken = false;
  bool waits = false;
  bool full = false;
  bool late = false;
  std::shared_ptr<StoredSession> other;    // the one that has the session
  std::shared_ptr<StoredSession> earlier;  // the same, if it is an earlier try of this call
  {
    std::lock_guard lock(mutex_);
    const auto [entry, is_new] = uses_.try_emplace(session->key());
    Use& use = entry->second;
    if (is_new) {
      use.take(session);
      use.is_brief = !session->changes();
      use.is_opening = true;
      taken = true;
    } else {
      late = use.is_late;
      other = use.session.lock();
      if (!use.is_brief && other != nullptr && session->repeats(*other)) earlier = other;
      waits = use.is_brief || earlier != nullptr || (use.is_opening && !session->changes());
      full = use.waiting.size() >= kMostWaiting;
      if (waits && !full && !late)
        use.waiting.emplace_back([this, session, done] { enter(session, done); });
    }
  }
  if (late) return done(unanswered(session->id()));
  if (!taken) {
    // A call that reads must wait until the session is loaded, because the engine may not have it.
    if (waits ? full : session->changes()) return done(busy(session->id()));
    if (earlier != nullptr) return earlier->give_way();
    if (!waits) done(std::shared_ptr<StoredSession>());
    return;
  }
  // The session owns this function. It would never be destroyed if the function owned the session.
  session->open([this, used = session.get(), done](const Status& opened) {
    if (!opened.ok()) return done(opened);
    if (!used->changes()) return done(std::shared_ptr<StoredSession>());
    const auto held = guarded(used->shared_from_this());
    end_opening(*held);
    done(held);
  });
}

// Calls that read no longer need to wait: the engine has the session.
void KeptSessions::end_opening(const StoredSession& session) {
  change(session, [](Use& use) { use.is_opening = false; });
}

// Changes the use of a session that still has it open. The waiting calls enter again.
void KeptSessions::change(const StoredSession& session, const std::function<void(Use&)>& by) {
  std::deque<std::function<void()>> waiting;
  {
    std::lock_guard lock(mutex_);
    const auto found = uses_.find(session.key());
    if (found == uses_.end() || found->second.by != &session) return;
    by(found->second);
    waiting.swap(found->second.waiting);
    if (none_open()) changed_.notify_all();
  }
  for (const auto& enter_again : waiting) enter_again();
}

Result<std::shared_ptr<StoredSession>> KeptSessions::adopt(std::shared_ptr<const ServedModel> model,
                                                           const Caller& caller,
                                                           const std::string& id, bool empty) {
  const auto session = std::make_shared<StoredSession>(*this, std::move(model), caller,
                                                       SessionUse{.id = id, .changes = true});
  if (Status s = session->adopt(empty); !s.ok()) return s;
  std::lock_guard lock(mutex_);
  const auto [entry, is_new] = uses_.try_emplace(session->key());
  if (!is_new) return busy(id);
  entry->second.take(session);
  return guarded(session);
}

void KeptSessions::ends_soon(const StoredSession& session) {
  std::lock_guard lock(mutex_);
  const auto found = uses_.find(session.key());
  if (found != uses_.end()) found->second.is_brief = true;
}

// The waiting calls enter again, and are refused.
void KeptSessions::begins_late(const StoredSession& session) {
  change(session, [](Use& use) { use.is_late = true; });
}

void KeptSessions::release(const StoredSession& session) {
  std::deque<std::function<void()>> waiting;
  {
    std::lock_guard lock(mutex_);
    const auto found = uses_.find(session.key());
    if (found == uses_.end() || found->second.by != &session) return;
    waiting.swap(found->second.waiting);
    uses_.erase(found);
    // Notifies with the lock held, because the waiting thread may destroy this object as soon as
    // the lock is free.
    if (none_open()) changed_.notify_all();
  }
  for (const auto& enter_again : waiting) enter_again();
}

KeptSessions::Copy KeptSessions::copy_of(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(key);
  return found == copies_.end() ? Copy() : found->second;
}

// If a copy is forgotten, the session is only loaded once more. The copy with the next key is as
// good as any, because keys are hashes.
void KeptSessions::note_copy(const std::string& key, const Copy& copy) {
  std::lock_guard lock(mutex_);
  if (copies_.size() >= kMostCopies && !copies_.contains(key)) {
    auto forgotten = copies_.lower_bound(key);
    if (forgotten == copies_.end()) forgotten = copies_.begin();
    copies_.erase(forgotten);
  }
  copies_[key] = copy;
}

void KeptSessions::remove(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
                          const std::string& id, const std::function<void(Status)>& done) {
  const std::string key = record_key(model->state_digest, caller.name, id);
  model->engine->delete_session({caller.name, id}, [this, key, done](const Status& deleted) {
    if (!deleted.ok() && deleted.code() != Code::kNotFound) return done(deleted);
    threads_.run<bool>([this, key] { return store_->remove(key); },
                       [this, deleted, done](const Result<bool>& removed) {
                         if (!removed.ok()) count_error();
                         if (!removed.ok()) return done(removed.status());
                         done(*removed ? Status() : deleted);
                       });
  });
}

void KeptSessions::find(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
                        const std::string& id,
                        const std::function<void(Result<SessionInfo>)>& done) {
  const SessionKey session = {caller.name, id};
  const std::string key = record_key(model->state_digest, caller.name, id);
  const std::string owner = store_->replica() + "/" + model->name;
  bool in_use = false;
  {
    std::lock_guard lock(mutex_);
    in_use = uses_.contains(key);
  }
  const auto merge = [this, session, owner, in_use, done](const Result<SessionInfo>& here,
                                                          const std::optional<Record>& record) {
    // Without a record, it is a new session of a running call, or a copy of a deleted session.
    if (!record) return done(in_use ? here : no_session(session.id, fields::kId));
    done(merged(session, owner, here.ok() ? &*here : nullptr, *record));
  };
  model->engine->get_session(session, [this, key, merge, done](const Result<SessionInfo>& here) {
    if (!here.ok() && here.status().code() != Code::kNotFound) return done(here);
    threads_.run<std::optional<Record>>(
        [this, key] { return store_->look(key); },
        [this, here, merge, done](const Result<std::optional<Record>>& found) {
          if (found.ok()) return merge(here, *found);
          count_error();
          done(found.status());
        });
  });
}

// A session with a record. `owner` is that of this server's calls. `here` is the session in the
// engine; null if the engine does not have it.
SessionInfo KeptSessions::merged(const SessionKey& session, const std::string& owner,
                                 const SessionInfo* here, const Record& record) const {
  const int64_t now = context_.clock.unix_ms();
  const bool runs = record.until > now;
  const bool is_ours = here != nullptr && record.owner == owner;
  if (is_ours && (runs || here->position == record.position)) return *here;
  const int64_t idle = runs ? 0 : std::max<int64_t>(0, now - record.used);
  const SessionPhase resting = record.position == 0 ? SessionPhase::kNew : SessionPhase::kIdle;
  return {.key = session,
          .state = runs ? SessionPhase::kGenerating : resting,
          .position = record.position,
          .idle = std::chrono::milliseconds(idle)};
}

void KeptSessions::list(const std::shared_ptr<const ServedModel>& model, const Caller& caller,
                        const std::string& after, int most,
                        const std::function<void(Result<SessionPage>)>& done) {
  const int count = std::min(most, kMostListed);
  const auto take = [this, model, name = caller.name, after, count,
                     done](const Result<SessionPage>& here) {
    if (!here.ok()) return done(here);
    threads_.run_in_turn<SessionPage>(
        [this, model, name, after, count, page = *here] {
          return page_of(*model, name, after, static_cast<size_t>(count), page);
        },
        [this, done](const Result<SessionPage>& page) {
          if (!page.ok()) count_error();
          done(page);
        });
  };
  model->engine->list_sessions(caller.name, after, count, take);
}

// A page of the sessions of the engine and the store together. `here` is a page of the engine's
// sessions.
Result<SessionPage> KeptSessions::page_of(const ServedModel& model, const std::string& caller,
                                          const std::string& after, size_t count,
                                          const SessionPage& here) {
  const auto listed = store_->list(record_list(model.state_digest, caller), after, count + 1);
  if (!listed.ok()) return listed.status();
  std::map<std::string, const SessionInfo*> all;  // by id; null: the engine does not have it
  for (const std::string& id : *listed) all[id] = nullptr;
  for (const SessionInfo& info : here.sessions) all[info.key.id] = &info;
  SessionPage page;
  const std::string owner = store_->replica() + "/" + model.name;
  std::string last;
  size_t seen = 0;
  for (const auto& [id, info] : all) {
    if (seen++ == count) break;
    last = id;
    const SessionKey session = {caller, id};
    const std::string key = record_key(model.state_digest, caller, id);
    const auto record = store_->look(key);
    const bool is_damaged = record.status().code() == Code::kDataLoss;
    if (!record.ok() && !is_damaged) return record.status();
    if (is_damaged) {  // listed, so that it can be deleted
      Record damaged;
      damaged.used = context_.clock.unix_ms();
      page.sessions.push_back(merged(session, owner, info, damaged));
    } else if (*record) {
      page.sessions.push_back(merged(session, owner, info, **record));
    } else if (info != nullptr && !rests(key)) {  // a running call is making it
      page.sessions.push_back(*info);
    }
  }
  if (all.size() > count || !here.next.empty()) page.next = last;
  return page;
}

void KeptSessions::tend() {
  threads_.tend();
  logs_.tend();
  std::vector<std::shared_ptr<StoredSession>> open;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, use] : uses_) open.push_back(use.session.lock());
  }
  for (const auto& session : open) {
    if (session != nullptr) session->renew();
  }
  if (const TimePoint now = context_.clock.now(); now - swept_ >= kSweepEvery) {
    swept_ = now;
    sweep();
  }
  threads_.run<bool>(
      [this]() -> Result<bool> {
        if (syncing_.exchange(true)) return true;  // so that a slow disk keeps only one thread busy
        const Status synced = within_memory([&] { return store_->sync(); });
        syncing_ = false;
        return synced.ok() ? Result<bool>(true) : Result<bool>(synced);
      },
      [this](const Result<bool>& synced) {
        if (synced.ok()) return;
        count_error();
        context_.log.warn("storage", {{"message", synced.status().message()}});
      });
}

bool KeptSessions::wait_until_saved(Duration at_most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, at_most, [&] { return none_open(); });
}

// With mutex_ held. Nothing is saved for a call that begins late.
bool KeptSessions::none_open() const {
  return std::ranges::all_of(uses_, [](const auto& use) { return use.second.is_late; });
}

bool KeptSessions::wait_until_idle(Duration at_most) {
  return threads_.wait_until_idle(at_most) && logs_.wait_until_idle(at_most);
}

void KeptSessions::count_error() { context_.metrics.storage_errors.add(); }

Status KeptSessions::failed(Status status) {
  count_error();
  return status.with_reason("storage");
}

void KeptSessions::count_snapshot(SnapshotReason reason) {
  context_.metrics.snapshots[static_cast<size_t>(reason)].add();
}

bool KeptSessions::rests(const std::string& key) {
  std::lock_guard lock(mutex_);
  return !uses_.contains(key);
}

void KeptSessions::log_unsaved(const std::string& session, const Status& status) {
  context_.log.warn("storage", {{"session", session}, {"message", status.message()}});
}

}  // namespace runnel
