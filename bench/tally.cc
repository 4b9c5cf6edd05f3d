#include "bench/tally.h"

#include <string>

namespace runnel {

Tally::Tally(const Work& work)
    : work_(work), start_(std::chrono::steady_clock::now()), open_(work.calls) {}

void Tally::end(const Status& status) {
  std::lock_guard lock(mutex_);
  if (failed_.ok()) failed_ = status;
  if (--open_ > 0) return;
  ended_ = std::chrono::steady_clock::now();
  wake_.notify_one();
}

Result<double> Tally::wait(const OnValues& on_values) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(100), [&] { return open_ == 0; })) {
    lock.unlock();
    if (on_values) on_values(values_.load(std::memory_order_relaxed));
    lock.lock();
  }
  if (!failed_.ok()) return failed_;
  const int64_t came = values_.load(std::memory_order_relaxed);
  if (came != work_.all_values()) {
    return Status(Code::kInternal, "asked for " + std::to_string(work_.all_values()) +
                                       " values and got " + std::to_string(came));
  }
  return std::chrono::duration<double>(ended_ - start_).count();
}

}  // namespace runnel
