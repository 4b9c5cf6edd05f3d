#include "server/live_calls.h"

#include <utility>

namespace runnel {

LiveCalls::Id LiveCalls::enter(Handle handle) {
  std::lock_guard lock(mutex_);
  calls_.emplace(next_, std::move(handle));
  changed_.notify_all();
  return next_++;
}

void LiveCalls::leave(Id id) {
  std::lock_guard lock(mutex_);
  calls_.erase(id);
  // With the lock held: whoever waits may end this object as soon as it is free.
  if (calls_.empty()) changed_.notify_all();
}

int LiveCalls::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(calls_.size());
}

bool LiveCalls::wait_until_none(Duration at_most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, at_most, [&] { return calls_.empty(); });
}

void LiveCalls::wait_until_quiet(Duration quiet, Duration at_most) {
  const TimePoint until = std::chrono::steady_clock::now() + at_most;
  std::unique_lock lock(mutex_);
  while (std::chrono::steady_clock::now() < until) {
    const Id seen = next_;
    const bool came = changed_.wait_for(lock, quiet, [&] { return next_ != seen; });
    if (!came && calls_.empty()) return;
  }
}

std::vector<LiveCalls::Handle> LiveCalls::handles() const {
  std::vector<Handle> handles;
  std::lock_guard lock(mutex_);
  for (const auto& [id, handle] : calls_) handles.push_back(handle);
  return handles;
}

void LiveCalls::end_all(const Status& status) {
  for (const Handle& handle : handles()) handle.end(status);
}

void LiveCalls::cut_off_stalled(Duration limit) {
  for (const Handle& handle : handles()) handle.cut_off(limit);
}

}  // namespace runnel
