#include "server/host/resting_logs.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/within_memory.h"
#include "server/host/kept_sessions.h"
#include "server/host/save_file.h"

namespace runnel {
namespace {

constexpr auto kRest = std::chrono::seconds(1);
constexpr size_t kMostEntries = size_t{1} << 16;

}  // namespace

// A state on its way from the engine to the store. The engine holds this object until it has copied
// the state into it.
struct RestingLogs::Copy {
  MemoryBudget::Hold room;
  StateImage image;
  std::optional<Code> end;  // of copying; with mutex_ held
};

RestingLogs::RestingLogs(KeptSessions& kept) : kept_(kept), thread_([this] { run(); }) {}

RestingLogs::~RestingLogs() {
  stop();
  thread_.join();
}

// A session for which there is no room keeps its log.
void RestingLogs::add(LoggedSession session) {
  static_cast<void>(within_memory([&] {
    std::lock_guard lock(mutex_);
    const TimePoint due = kept_.context().clock.now() + kRest;
    if (entries_.size() < kMostEntries) entries_.push_back({std::move(session), due});
    return Status();
  }));
}

void RestingLogs::hurry() {
  std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) entry.due = kept_.context().clock.now();
  changed_.notify_all();
}

void RestingLogs::stop() {
  std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

bool RestingLogs::wait_until_none(Duration at_most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, at_most, [&] { return entries_.empty() && !writes_; });
}

bool RestingLogs::wait_until_idle(Duration at_most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, at_most, [&] { return !writes_; });
}

// With mutex_ held. Entries are added roughly in the order in which they are due.
bool RestingLogs::is_any_due() const {
  return !entries_.empty() && entries_.front().due <= kept_.context().clock.now();
}

void RestingLogs::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_over_ || is_any_due(); });
    if (is_over_) return;
    std::list<Entry> taken;
    taken.splice(taken.begin(), entries_, entries_.begin());
    writes_ = true;
    lock.unlock();
    bool is_done = false;
    static_cast<void>(within_memory([&] {
      is_done = write(taken.front().session);
      return Status();
    }));
    lock.lock();
    writes_ = false;
    taken.front().due = kept_.context().clock.now() + kRest;
    if (!is_done) entries_.splice(entries_.end(), taken);
    changed_.notify_all();
  }
}

// Writes the state of the session to the store. Returns false if this must be tried again later. If
// the session has had another call since, or the engine no longer has the session, there is nothing
// to write. After a failure of the store, the write is not tried again.
bool RestingLogs::write(const LoggedSession& session) {
  const auto model = session.model.lock();
  if (model == nullptr || kept_.copy_of(session.key).saved != session.saved) return true;
  if (!kept_.rests(session.key)) return false;
  const auto copy = std::make_shared<Copy>();
  const Code copied = copy_state(session, *model->engine, copy);
  if (copied == Code::kNotFound) return true;
  if (copied != Code::kOk || copy->image.position != session.position) return false;
  const auto settled =
      save_file(kept_.context(), *model, session.session.owner, std::move(copy->image),
                [&](const Snapshot& snapshot) -> Result<int64_t> {
                  const auto done = kept_.store().settle(session.key, session.saved, snapshot);
                  return done.ok() ? Result<int64_t>(*done ? session.saved : 0) : done.status();
                });
  if (!settled.ok()) kept_.count_error();
  if (settled.ok() && *settled != 0) {
    const bool drains = kept_.context().draining;
    kept_.count_snapshot(drains ? SnapshotReason::kDrain : SnapshotReason::kRest);
  }
  return true;
}

// Waits for the engine, which answers within a few turns, or for stop().
Code RestingLogs::copy_state(const LoggedSession& session, Engine& engine,
                             const std::shared_ptr<Copy>& copy) {
  auto room = kept_.context().memory.take(bytes_to_save(engine));
  if (!room.ok()) return room.status().code();
  copy->room = std::move(*room);
  copy->image.bytes.resize(static_cast<size_t>(engine.state_bytes()));
  engine.copy_at_rest(session.session, std::shared_ptr<StateImage>(copy, &copy->image),
                      [this, copy](const auto& copied) {
                        std::lock_guard lock(mutex_);
                        copy->end = copied.status().code();
                        changed_.notify_all();
                      });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_over_ || copy->end; });
  return copy->end.value_or(Code::kCancelled);
}

}  // namespace runnel
