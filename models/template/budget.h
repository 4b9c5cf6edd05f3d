// The budget of one rendering: evaluations, processor time, and memory of its values.
#pragma once

#include <cstdint>
#include <string>

#include "base/work_limit.h"
#include "models/template/fault.h"
#include "models/template/limits.h"
#include "models/text/marked_text.h"

namespace runnel::jinja {

class Budget {
 public:
  Budget(int64_t bytes, WorkLimit limit) : bytes_(bytes), most_bytes_(bytes), limit_(limit) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Counts evaluations. Throws a Fault if there are too many, or if the time is up.
  void spend(int64_t evaluations) {
    spent_ += evaluations;
    if (spent_ >= next_look_) look();
  }
  // Counts work on this many bytes: 64 bytes cost as much as an evaluation.
  void spend_on_bytes(size_t bytes) { spend(static_cast<int64_t>(bytes / 64)); }

  // Count the memory of a value when it is made and when it is destroyed. take() throws a Fault if
  // too little is left.
  void take(int64_t bytes) {
    if (bytes > bytes_) {
      throw Fault{FaultKind::kLimit, "the values of the template take more than " +
                                         std::to_string(most_bytes_) + " bytes"};
    }
    bytes_ -= bytes;
  }
  void give(int64_t bytes) { bytes_ += bytes; }
  // Throws a Fault if there is no memory for `text` with `more` bytes. To be called while the text
  // is being made, before it is a value.
  void expect_room(const MarkedText& text, size_t more) {
    const auto bytes = static_cast<int64_t>(memory_of(text) + more);
    take(bytes);
    give(bytes);
  }

 private:
  static constexpr int64_t kLookEvery = 1024;

  void look() {
    if (spent_ > kMaxEvaluations) {
      throw Fault{FaultKind::kLimit, "the template takes more than " +
                                         std::to_string(kMaxEvaluations) + " evaluations"};
    }
    if (limit_.is_over()) {
      throw Fault{FaultKind::kLimit, "the template takes longer than it may (at most " +
                                         std::to_string(WorkLimit::kOfRequest.count()) +
                                         " s of processor time)"};
    }
    next_look_ = spent_ + kLookEvery;
  }

  int64_t bytes_, most_bytes_;
  WorkLimit limit_;
  int64_t spent_ = 0, next_look_ = 0;
};

// The memory of one value. Without a budget it is not counted, as for the constants of a template.
class Memory {
 public:
  explicit Memory(Budget* budget) : budget_(budget) {}
  Memory(Memory&& other) noexcept : budget_(other.budget_), bytes_(other.bytes_) {
    other.bytes_ = 0;
  }
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (budget_ != nullptr) budget_->give(bytes_);
  }
  void grow(size_t bytes) {
    if (budget_ == nullptr) return;
    budget_->take(static_cast<int64_t>(bytes));
    bytes_ += static_cast<int64_t>(bytes);
  }
  void spend_on_bytes(size_t bytes) {
    if (budget_ != nullptr) budget_->spend_on_bytes(bytes);
  }

 private:
  Budget* budget_;
  int64_t bytes_ = 0;
};

}  // namespace runnel::jinja
