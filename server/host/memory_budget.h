// Memory that the calls of a server hold together, in bytes. A call takes what it may need before
// it allocates, and is refused where too little is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace runnel {

// Any thread may call any function.
class MemoryBudget {
 public:
  // Bytes taken from a budget, which are given back when this ends. It may outlive the budget.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept;
    Hold& operator=(Hold&& other) noexcept;
    ~Hold();

    int64_t bytes() const { return bytes_; }

   private:
    friend class MemoryBudget;

    std::shared_ptr<std::atomic<int64_t>> held_;
    int64_t bytes_ = 0;
  };

  explicit MemoryBudget(int64_t bytes);

  // RESOURCE_EXHAUSTED where fewer bytes are left, with a time to try again; INVALID_ARGUMENT where
  // the whole budget has fewer.
  Result<Hold> take(int64_t bytes);
  // Makes `hold`, one of this budget's or an empty one, at least so large. Unchanged where the
  // status is not OK.
  Status grow(Hold& hold, int64_t bytes);
  // Gives back what `hold` has beyond `bytes`.
  static void shrink(Hold& hold, int64_t bytes);

  int64_t size() const { return size_; }
  int64_t held() const { return held_->load(std::memory_order_relaxed); }

 private:
  const int64_t size_;
  const std::shared_ptr<std::atomic<int64_t>> held_;  // by all
};

}  // namespace runnel
