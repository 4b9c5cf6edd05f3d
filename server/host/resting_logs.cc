#include "server/host/resting_logs.h"

#include <chrono>
#include <utility>

#include "base/within_memory.h"
#include "server/host/kept_sessions.h"
#include "server/host/server_context.h"
#include "server/host/session_file.h"

namespace runnel {
namespace {

constexpr auto kRest = std::chrono::seconds(1);
constexpr int kAtOnce = 2;  // of KeptSessions::kThreads, so that calls find a thread of the store
constexpr size_t kMostEntries = size_t{1} << 16;

}  // namespace

// The way of one state from the engine to the store. Each step keeps the object for the next one.
// Where a step fails, or finds no memory, the state is written later.
class RestingLogs::Writing : public std::enable_shared_from_this<Writing> {
 public:
  Writing(RestingLogs& logs, std::string key, LoggedSession session, bool hurries)
      : logs_(logs), key_(std::move(key)), session_(std::move(session)), hurries_(hurries) {}
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  ~Writing() {
    model_.reset();
    logs_.end(key_, session_.saved, is_over_);
  }

  // First looks whether the engine still has the session, which costs no memory.
  void start() {
    model_ = session_.model.lock();
    if (model_ == nullptr) return give_up();
    model_->engine->get_session(session_.key, [self = shared_from_this()](const auto& here) {
      if (here.status().code() == Code::kNotFound) return self->give_up();
      if (here.ok() && here->position == self->session_.position) self->make_image();
    });
  }

 private:
  KeptSessions& kept() const { return logs_.kept_; }
  // The log stays.
  void give_up() { is_over_ = true; }

  void make_image() {
    kept().threads().run<std::shared_ptr<StateImage>>(
        [self = shared_from_this()]() -> Result<std::shared_ptr<StateImage>> {
          auto room = self->kept().context().memory.take(bytes_to_save(*self->model_->engine));
          if (!room.ok()) return room.status();
          self->room_ = std::move(*room);
          auto image = std::make_shared<StateImage>();
          image->bytes.resize(static_cast<size_t>(self->model_->engine->state_bytes()));
          return image;
        },
        [self = shared_from_this()](const Result<std::shared_ptr<StateImage>>& image) {
          if (image.ok()) self->copy(*image);
        });
  }

  void copy(const std::shared_ptr<StateImage>& image) {
    model_->engine->copy_at_rest(session_.key, image,
                                 [self = shared_from_this(), image](const auto& copied) {
                                   if (copied.ok() && image->position == self->session_.position)
                                     self->write(image);
                                 });
  }

  // Once for each call that was logged (Store::settle()).
  void write(const std::shared_ptr<StateImage>& image) {
    give_up();
    kept().threads().run<int64_t>(
        [self = shared_from_this(), image] {
          return save_file(self->kept().context(), *self->model_, self->session_.key.owner,
                           std::move(*image), [&](const Snapshot& snapshot) -> Result<int64_t> {
                             const auto settled = self->kept().store().settle(
                                 self->key_, self->session_.saved, snapshot);
                             if (!settled.ok()) return settled.status();
                             return *settled ? 1 : 0;
                           });
        },
        [self = shared_from_this()](const Result<int64_t>& settled) {
          if (!settled.ok()) {
            self->kept().count_error();
          } else if (*settled == 1) {
            self->kept().count_snapshot(self->hurries_ ? SnapshotReason::kDrain
                                                       : SnapshotReason::kRest);
          }
        });
  }

  RestingLogs& logs_;
  const std::string key_;
  const LoggedSession session_;
  const bool hurries_;
  std::shared_ptr<const ServedModel> model_;
  MemoryBudget::Hold room_;  // of the image
  bool is_over_ = false;     // there is no next try
};

void RestingLogs::add(const std::string& key, LoggedSession session) {
  std::lock_guard lock(mutex_);
  if (entries_.size() >= kMostEntries && !entries_.contains(key)) return;
  entries_[key] = {.session = std::move(session), .since = kept_.context().clock.now()};
}

void RestingLogs::remove(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (entries_.erase(key) == 1) changed_.notify_all();
}

void RestingLogs::tend() { begin_due(); }

void RestingLogs::hurry() {
  {
    std::lock_guard lock(mutex_);
    if (pace_ == Pace::kRest) pace_ = Pace::kHurry;
  }
  begin_due();
}

void RestingLogs::stop() {
  std::lock_guard lock(mutex_);
  pace_ = Pace::kStopped;
}

bool RestingLogs::wait_until_none(Duration at_most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, at_most, [&] { return entries_.empty() && running_ == 0; });
}

// With mutex_ held.
bool RestingLogs::is_due(const std::string& key, const Entry& entry) const {
  if (entry.is_taken) return false;
  const bool at_once = pace_ == Pace::kHurry && !entry.was_put_off;
  const bool has_rested = kept_.context().clock.now() - entry.since >= kRest;
  return (at_once || has_rested) && kept_.rests(key);
}

// Null where nothing is due, or enough is being written: the thread leaves begin_due().
std::shared_ptr<RestingLogs::Writing> RestingLogs::take_due() {
  std::lock_guard lock(mutex_);
  const bool may_begin = pace_ != Pace::kStopped && running_ < kAtOnce;
  for (auto& [key, entry] : entries_) {
    if (!may_begin || !is_due(key, entry)) continue;
    auto writing = std::make_shared<Writing>(*this, key, entry.session, pace_ == Pace::kHurry);
    entry.is_taken = true;
    ++running_;
    return writing;
  }
  is_beginning_ = false;
  return nullptr;
}

// False while another caller is at it, who then looks again.
bool RestingLogs::begins_alone() {
  std::lock_guard lock(mutex_);
  return !std::exchange(is_beginning_, true);
}

// A state whose first step fails ends within this function, which is then not called again: each
// end would be deeper in the stack than the one before.
void RestingLogs::begin_due() {
  if (!begins_alone()) return;
  const Status begun = within_memory([&] {
    while (const auto writing = take_due()) writing->start();
    return Status();
  });
  if (begun.ok()) return;
  std::lock_guard lock(mutex_);
  is_beginning_ = false;
}

void RestingLogs::end(const std::string& key, int64_t saved, bool is_over) {
  {
    std::lock_guard lock(mutex_);
    --running_;
    const auto found = entries_.find(key);
    if (found != entries_.end() && found->second.session.saved == saved) {
      if (is_over) {
        entries_.erase(found);
      } else {
        found->second.is_taken = false;
        found->second.was_put_off = true;
        found->second.since = kept_.context().clock.now();
      }
    }
    changed_.notify_all();
  }
  begin_due();
}

}  // namespace runnel
