#include "server/host/kept_sessions.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "server/host/server_context.h"
#include "storage/record_key.h"

namespace runnel {
namespace {

constexpr size_t kMostJobs = 4096;
constexpr size_t kMostWaiting = 64;  // calls for one session
constexpr size_t kMostCopies = size_t{1} << 16;

Status busy(const std::string& id) {
  Status status(Code::kAborted,
                "session " + quote(id) + " is busy with another call; wait until that one ends");
  return status.with_retry_after(std::chrono::milliseconds(100));
}

// Ends a call's use of its session, unless the session was saved.
struct UseGuard {
  explicit UseGuard(std::shared_ptr<StoredSession> used) : session(std::move(used)) {}
  UseGuard(const UseGuard&) = delete;
  UseGuard& operator=(const UseGuard&) = delete;
  ~UseGuard() { session->end_unheard(); }

  const std::shared_ptr<StoredSession> session;
};

std::shared_ptr<StoredSession> guarded(const std::shared_ptr<StoredSession>& session) {
  return {std::make_shared<UseGuard>(session), session.get()};
}

}  // namespace

KeptSessions::KeptSessions(ServerContext& context, std::shared_ptr<Store> store,
                           const StoreTimes& times)
    : context_(context),
      store_(std::move(store)),
      lease_(std::chrono::milliseconds(times.lease_ms)),
      threads_(kThreads, kMostJobs, std::chrono::milliseconds(times.timeout_ms), context.clock) {
  threads_.run<bool>(
      [this]() -> Result<bool> {
        const Status swept = store_->sweep();
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
  std::shared_ptr<StoredSession> earlier;  // this call, made before
  {
    std::lock_guard lock(mutex_);
    const auto [entry, is_new] = uses_.try_emplace(session->key());
    Use& use = entry->second;
    if (is_new) {
      use.session = session;
      use.is_brief = !session->changes();
      taken = true;
    } else if (use.waiting.size() < kMostWaiting) {
      if (!use.is_brief && session->repeats(*use.session)) earlier = use.session;
      if (use.is_brief || earlier != nullptr) {
        use.waiting.emplace_back([this, session, done] { enter(session, done); });
        if (earlier == nullptr) return;
      }
    }
  }
  if (earlier != nullptr) return earlier->give_way();
  if (!taken) {
    if (session->changes()) return done(busy(session->id()));
    return done(std::shared_ptr<StoredSession>());
  }
  session->open([session, done](const Status& opened) {
    if (!opened.ok()) return done(opened);
    done(session->changes() ? guarded(session) : std::shared_ptr<StoredSession>());
  });
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
  entry->second.session = session;
  return guarded(session);
}

void KeptSessions::ends_soon(const StoredSession& session) {
  std::lock_guard lock(mutex_);
  const auto found = uses_.find(session.key());
  if (found != uses_.end()) found->second.is_brief = true;
}

void KeptSessions::release(const StoredSession& session) {
  std::deque<std::function<void()>> waiting;
  {
    std::lock_guard lock(mutex_);
    const auto found = uses_.find(session.key());
    if (found == uses_.end() || found->second.session.get() != &session) return;
    waiting.swap(found->second.waiting);
    uses_.erase(found);
    // With the lock held: whoever waits may end this object as soon as it is free.
    if (uses_.empty()) changed_.notify_all();
  }
  for (const auto& enter_again : waiting) enter_again();
}

KeptSessions::Copy KeptSessions::copy_of(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(key);
  return found == copies_.end() ? Copy() : found->second;
}

// A copy that is forgotten is loaded again, once.
void KeptSessions::note_copy(const std::string& key, const Copy& copy) {
  std::lock_guard lock(mutex_);
  if (copies_.size() >= kMostCopies) copies_.clear();
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
  const auto merge = [this, session, owner, done](const Result<SessionInfo>& here,
                                                  const std::optional<Record>& record) {
    if (!record || (here.ok() && record->owner == owner)) return done(here);
    const int64_t now = context_.clock.unix_ms();
    const bool runs = record->until > now;
    done(SessionInfo{.key = session,
                     .state = runs ? SessionPhase::kGenerating : SessionPhase::kIdle,
                     .position = record->position,
                     .idle = std::chrono::milliseconds(runs ? 0 : now - record->used)});
  };
  model->engine->get_session(session, [this, key, merge, done](const Result<SessionInfo>& here) {
    if (!here.ok() && here.status().code() != Code::kNotFound) return done(here);
    threads_.run<std::optional<Record>>(
        [this, key] { return store_->look(key); },
        [here, merge, done](const Result<std::optional<Record>>& found) {
          found.ok() ? merge(here, *found) : done(found.status());
        });
  });
}

void KeptSessions::tend() {
  threads_.tend();
  std::vector<std::shared_ptr<StoredSession>> open;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, use] : uses_) open.push_back(use.session);
  }
  for (const auto& session : open) session->renew();
  threads_.run<bool>(
      [this]() -> Result<bool> {
        const Status synced = store_->sync();
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
  return changed_.wait_for(lock, at_most, [&] { return uses_.empty(); });
}

void KeptSessions::count_error() { context_.metrics.storage_errors.add(); }

void KeptSessions::log_unsaved(const std::string& session, const Status& status) {
  context_.log.warn("storage", {{"session", session}, {"message", status.message()}});
}

}  // namespace runnel
