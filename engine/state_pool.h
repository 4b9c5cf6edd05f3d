// Which slots are free. Its size is the exact capacity of the server.
//
// A free slot can be set aside: it is free for who claims and counts, but must be put back before
// it can be leased. A leased slot can be lent: it counts as free, and whoever has leased it must
// release it before a call that has found it free leases.
//
// The scheduler's thread leases and releases. Other threads claim the slots that a call will lease
// before they hand it over, so that a full pool refuses at once and not after the running step.
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
  // Slots free and not claimed. Below 0 while calls that did not claim have leased claimed slots.
  int unclaimed() const { return unclaimed_.load(std::memory_order_acquire); }
  // Claims slots for a call on its way to the scheduler; false when too few are unclaimed.
  [[nodiscard]] bool claim(int slots);
  // Returns a claim, before the call leases: it has arrived, or it never will.
  void give_up(int slots) { unclaimed_.fetch_add(slots, std::memory_order_acq_rel); }

  // --- The scheduler's thread ---

  int free() const { return static_cast<int>(free_.size()) + aside_ + lent_; }
  // All that are free have been set aside, or are lent.
  bool all_aside() const { return free_.empty(); }
  int64_t released() const { return released_; }  // since the start

  // A slot for its caller alone, or none where none is free or all of them are set aside. Its
  // content is undefined.
  std::optional<SlotId> lease();
  // Sets aside the free slot that was released last; none where lease() has none.
  std::optional<SlotId> set_aside();
  // Puts one back that was set aside.
  void put_back(SlotId slot);

  // Lends a leased slot.
  void lend() {
    ++lent_;
    give_up(1);
  }
  // Ends that: calls that were to lease the slot may find none.
  void take_back() {
    --lent_;
    give_up(-1);
  }

  // Returns a slot that is not lent. Releasing one that is not leased stops the process.
  void release(SlotId slot);

 private:
  std::optional<SlotId> take();

  std::vector<SlotId> free_;  // a stack: the slot released last is warm in the cache
  std::vector<bool> leased_;  // or set aside
  int aside_ = 0;
  int lent_ = 0;
  int64_t released_ = 0;
  std::atomic<int> unclaimed_;
};

}  // namespace runnel
