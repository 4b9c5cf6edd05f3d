// How many bytes something may hold at once, taken and given back by many threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace runnel {

class ByteBudget {
 public:
  // Bytes that are taken until it goes. Outlived by its budget.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->taken_.fetch_sub(bytes_, std::memory_order_relaxed);
    }
    int64_t bytes() const { return bytes_; }

   private:
    friend class ByteBudget;
    Share(ByteBudget& budget, int64_t bytes) : budget_(&budget), bytes_(bytes) {}
    ByteBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

  explicit ByteBudget(int64_t bytes) : bytes_(bytes) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // Nothing when so many are not free. Never blocks.
  std::optional<Share> take(int64_t bytes) {
    int64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ - taken) return std::nullopt;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    return Share(*this, bytes);
  }

  int64_t bytes() const { return bytes_; }
  int64_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  const int64_t bytes_;
  std::atomic<int64_t> taken_{0};
};

}  // namespace runnel
