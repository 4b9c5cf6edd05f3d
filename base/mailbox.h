// A bounded queue from many threads to one. A full mailbox refuses at once; nobody ever waits to
// put.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace runnel {

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity) { waiting_.reserve(capacity); }

  // False, with `item` untouched, when the mailbox is full or closed.
  [[nodiscard]] bool put(T&& item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || waiting_.size() >= capacity_) return false;
      waiting_.push_back(std::move(item));
    }
    wake_.notify_one();
    return true;
  }

  // Wakes the taker without an item: a flag that it reads has changed.
  void nudge() {
    {
      std::lock_guard lock(mutex_);
      nudged_ = true;
    }
    wake_.notify_one();
  }

  // From here put() refuses; what is inside can still be taken.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    wake_.notify_one();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

  // Moves all that waits into `out`, which is cleared first. Does not wait.
  void take(std::vector<T>& out) {
    out.clear();
    std::lock_guard lock(mutex_);
    out.swap(waiting_);
    waiting_.reserve(capacity_);
    nudged_ = false;
  }

  // Waits until there is an item, a nudge or a close, and no longer than `at_most`.
  void wait(Duration at_most) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, at_most, [&] { return !waiting_.empty() || nudged_ || closed_; });
  }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<T> waiting_;
  bool nudged_ = false;
  bool closed_ = false;
};

}  // namespace runnel
