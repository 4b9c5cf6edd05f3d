// The memory that all calls of a server hold together, in bytes. A call takes the bytes that it may
// need before it allocates memory. It is refused if too few are left.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"

namespace runnel {

// Any thread may call any function.
class MemoryBudget {
 public:
  // Bytes taken from a budget. The destructor returns them. A Hold may outlive the budget.
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

  // RESOURCE_EXHAUSTED, with a time to try again, if fewer bytes are left. INVALID_ARGUMENT if the
  // whole budget has fewer.
  Result<Hold> take(int64_t bytes);
  // Makes `hold`, which must be of this budget or empty, at least this large. If the status is not
  // OK, `hold` does not change.
  Status grow(Hold& hold, int64_t bytes);
  // Returns the bytes of `hold` beyond `bytes`.
  static void shrink(Hold& hold, int64_t bytes);

  int64_t size() const { return size_; }
  int64_t held() const { return held_->load(std::memory_order_relaxed); }

 private:
  const int64_t size_;
  const std::shared_ptr<std::atomic<int64_t>> held_;  // by all
};

}  // namespace runnel
