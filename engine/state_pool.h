// Which slots are free. Its size is the server's capacity, exactly: nothing is evicted to make
// room.
//
// The scheduler's thread leases and releases. Other threads claim what a call will lease before
// they hand it over, so that a full pool refuses at once and not when the step that runs is over.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "models/model.h"

namespace runnel {

class StatePool {
 public:
  explicit StatePool(int slots);

  // --- From any thread ---

  int size() const { return static_cast<int>(leased_.size()); }
  // Free and not claimed; never less than the truth. Below 0 while more has been leased than
  // claimed.
  int unclaimed() const { return unclaimed_.load(std::memory_order_acquire); }
  // Claims slots for a call on its way to the scheduler; false when they are not there.
  [[nodiscard]] bool claim(int slots);
  // The call has arrived, or never will: gives its claim back, before it leases.
  void give_up(int slots) { unclaimed_.fetch_add(slots, std::memory_order_acq_rel); }

  // --- The scheduler's thread ---

  int free() const { return static_cast<int>(free_.size()); }

  // A slot for its caller alone, or none. Its content is whatever was there: zero it with
  // Model::set().
  std::optional<SlotId> lease();

  // Gives a slot back. Releasing one that is not leased stops the process.
  void release(SlotId slot);

 private:
  std::vector<SlotId> free_;  // a stack: the slot released last is warm in the cache
  std::vector<bool> leased_;
  std::atomic<int> unclaimed_;
};

}  // namespace runnel
