#include "server/host/live_calls.h"

#include <utility>

namespace runnel {

void LiveCalls::enter(std::shared_ptr<LiveCall> call) {
  std::lock_guard lock(mutex_);
  calls_.insert(std::move(call));
  ++entered_;
  changed_.notify_all();
}

void LiveCalls::leave(const std::shared_ptr<LiveCall>& call) {
  std::lock_guard lock(mutex_);
  calls_.erase(call);
  // Notifies with the lock held, because the waiting thread may destroy this object as soon as the
  // lock is free.
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
    const uint64_t seen = entered_;
    const bool came = changed_.wait_for(lock, quiet, [&] { return entered_ != seen; });
    if (!came && calls_.empty()) return;
  }
}

std::vector<std::shared_ptr<LiveCall>> LiveCalls::calls() const {
  std::lock_guard lock(mutex_);
  return {calls_.begin(), calls_.end()};
}

void LiveCalls::end_all(const Status& status) {
  for (const auto& call : calls()) call->end(status);
}

void LiveCalls::tend_all(TimePoint now) {
  for (const auto& call : calls()) call->tend(now);
}

}  // namespace runnel
