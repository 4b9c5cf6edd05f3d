// A bounded queue from many threads to one. A full mailbox refuses an item at once; put() never
// waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace runnel {

template <typename T>
class Mailbox {
 public:
  // The mailbox holds at most `capacity` items. The memory that the items own may have at most
  // `bytes` bytes in total, or more if there is only one item.
  Mailbox(size_t capacity, int64_t bytes) : capacity_(capacity), most_bytes_(bytes) {}

  // Puts an item that owns `bytes` bytes of memory. If the mailbox is full or closed, returns false
  // and does not change `item`.
  [[nodiscard]] bool put(T&& item, int64_t bytes) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || waiting_.size() >= capacity_) return false;
      if (!waiting_.empty() && bytes_ + bytes > most_bytes_) return false;
      add(std::move(item), bytes);
    }
    wake_.notify_one();
    return true;
  }

  // The same for items whose number is limited elsewhere. A full mailbox accepts them.
  [[nodiscard]] bool put_beyond(T&& item, int64_t bytes) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      add(std::move(item), bytes);
    }
    wake_.notify_one();
    return true;
  }

  // Wakes the thread that takes items, because a flag that it reads has changed.
  void nudge() {
    {
      std::lock_guard lock(mutex_);
      nudged_ = true;
    }
    wake_.notify_one();
  }

  // From here on, put() refuses items. Items in the mailbox can still be taken.
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

  // Returns the number of items, and forgets earlier nudges.
  size_t look() {
    std::lock_guard lock(mutex_);
    nudged_ = false;
    return waiting_.size();
  }

  // The oldest item, or none. Does not wait.
  std::optional<T> take() {
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) return std::nullopt;
    std::optional<T> item(std::move(waiting_.front().item));
    bytes_ -= waiting_.front().bytes;
    waiting_.pop_front();
    return item;
  }

  // Waits until the mailbox has an item, is nudged or is closed, but not longer than `at_most`.
  void wait(Duration at_most) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, at_most, [&] { return !waiting_.empty() || nudged_ || closed_; });
  }

 private:
  struct Waiting {
    T item;
    int64_t bytes;
  };

  void add(T&& item, int64_t bytes) {
    waiting_.push_back({std::move(item), bytes});
    bytes_ += bytes;  // after push_back(), which throws if there is no memory
  }

  const size_t capacity_;
  const int64_t most_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Waiting> waiting_;
  int64_t bytes_ = 0;  // of waiting_
  bool nudged_ = false;
  bool closed_ = false;
};

}  // namespace runnel
