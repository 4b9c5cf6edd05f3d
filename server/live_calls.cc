#include "server/live_calls.h"

#include <vector>

namespace runnel {

LiveCalls::Id LiveCalls::enter(End end) {
  std::lock_guard lock(mutex_);
  calls_.emplace(next_, std::move(end));
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

void LiveCalls::end_all(const Status& status) {
  std::vector<End> ends;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, end] : calls_) ends.push_back(end);
  }
  for (const End& end : ends) end(status);
}

}  // namespace runnel
