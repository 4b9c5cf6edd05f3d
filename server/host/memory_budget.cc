#include "server/host/memory_budget.h"

#include <chrono>
#include <string>
#include <utility>

namespace runnel {
namespace {

Status used_up(int64_t needed, int64_t held, int64_t size) {
  if (needed > size) {
    return invalid_argument("the call may need " + std::to_string(needed) +
                            " bytes, and limits.call_bytes allows " + std::to_string(size) +
                            " for all calls; ask for less, or raise the limit")
        .with_reason("call_bytes");
  }
  Status status(Code::kResourceExhausted, "the call may need " + std::to_string(needed) +
                                              " bytes, and calls hold " + std::to_string(held) +
                                              " of the " + std::to_string(size) +
                                              " that limits.call_bytes allows; try again");
  return status.with_retry_after(std::chrono::milliseconds(500)).with_reason("call_bytes");
}

}  // namespace

MemoryBudget::Hold::Hold(Hold&& other) noexcept
    : held_(std::move(other.held_)), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryBudget::Hold& MemoryBudget::Hold::operator=(Hold&& other) noexcept {
  std::swap(held_, other.held_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryBudget::Hold::~Hold() {
  if (held_ != nullptr) held_->fetch_sub(bytes_, std::memory_order_relaxed);
}

MemoryBudget::MemoryBudget(int64_t bytes)
    : size_(bytes), held_(std::make_shared<std::atomic<int64_t>>(0)) {}

Result<MemoryBudget::Hold> MemoryBudget::take(int64_t bytes) {
  Hold hold;
  if (Status s = grow(hold, bytes); !s.ok()) return s;
  return hold;
}

Status MemoryBudget::grow(Hold& hold, int64_t bytes) {
  if (hold.held_ == nullptr) hold.held_ = held_;
  const int64_t more = bytes - hold.bytes_;
  if (more <= 0) return {};
  int64_t held = held_->load(std::memory_order_relaxed);
  do {
    if (more > size_ - held) return used_up(bytes, held - hold.bytes_, size_);
  } while (!held_->compare_exchange_weak(held, held + more, std::memory_order_relaxed));
  hold.bytes_ = bytes;
  return {};
}

void MemoryBudget::shrink(Hold& hold, int64_t bytes) {
  if (bytes >= hold.bytes_) return;
  hold.held_->fetch_sub(hold.bytes_ - bytes, std::memory_order_relaxed);
  hold.bytes_ = bytes;
}

}  // namespace runnel
