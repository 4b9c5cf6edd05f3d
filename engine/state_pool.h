// Says which slots are free. The size of the pool is the exact capacity of the server.
//
// - A free slot can be set aside. It still counts as free and can be claimed, but it must be put
//   back before it can be leased.
// - A leased slot can be lent. It then counts as free, although it is leased. The call that has
//   leased it must release it before another call leases it.
//
// The scheduler's thread leases and releases slots. Another thread claims a call's slots before it
// hands the call to the scheduler. So a full pool refuses the call at once, and not only after the
// running step.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/model.h"

namespace runnel {

class StatePool {
 public:
  explicit StatePool(int slots);

  // --- From any thread ---

  int size() const { return static_cast<int>(leased_.size()); }
  // The number of free slots that are not claimed. It is below 0 while calls that claimed nothing
  // have leased slots that others have claimed.
  int unclaimed() const { return unclaimed_.load(std::memory_order_acquire); }
  // Claims slots for a call on its way to the scheduler. False if too few slots are unclaimed.
  [[nodiscard]] bool claim(int slots);
  // Returns a claim, before the call leases its slots or because it will never arrive.
  void give_up(int slots) { unclaimed_.fetch_add(slots, std::memory_order_acq_rel); }

  // --- The scheduler's thread ---

  int free() const { return static_cast<int>(free_.size()) + aside_ + lent_; }
  // Whether lease() has no slot: each free slot is set aside or lent.
  bool all_aside() const { return free_.empty(); }
  int64_t released() const { return released_; }  // since the start

  // Leases a slot, whose content is undefined. None if no slot is free, or all free slots are set
  // aside or lent.
  std::optional<SlotId> lease();
  // Sets aside the free slot that was released last. None if lease() has no slot.
  std::optional<SlotId> set_aside();
  // Puts back a slot that was set aside.
  void put_back(SlotId slot);

  // Lends a leased slot: it counts as free from then on.
  void lend() {
    ++lent_;
    give_up(1);
  }
  // Ends the loan of a slot. A call that has claimed the slot may then find none to lease.
  void take_back() {
    --lent_;
    give_up(-1);
  }

  // Returns a leased slot, which must not be lent. The process stops if the slot is not leased.
  void release(SlotId slot);

 private:
  std::optional<SlotId> take();

  std::vector<SlotId> free_;  // a stack: the slot released last is warm in the cache
  std::vector<bool> leased_;  // by slot; true also for a slot that is set aside
  int aside_ = 0;
  int lent_ = 0;
  int64_t released_ = 0;
  std::atomic<int> unclaimed_;
};

}  // namespace runnel
