#include "engine/state_pool.h"

#include "base/check.h"

namespace runnel {

StatePool::StatePool(int slots) : leased_(slots, false), unclaimed_(slots) {
  for (SlotId slot = slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

bool StatePool::claim(int slots) {
  int there = unclaimed();
  do {
    if (slots > there) return false;
  } while (!unclaimed_.compare_exchange_weak(there, there - slots, std::memory_order_acq_rel));
  return true;
}

std::optional<SlotId> StatePool::take() {
  if (free_.empty()) return std::nullopt;
  const SlotId slot = free_.back();
  free_.pop_back();
  check(!leased_[slot], "a free slot has no owner");
  leased_[slot] = true;
  return slot;
}

std::optional<SlotId> StatePool::lease() {
  const std::optional<SlotId> slot = take();
  if (slot) unclaimed_.fetch_sub(1, std::memory_order_acq_rel);
  return slot;
}

std::optional<SlotId> StatePool::set_aside() {
  const std::optional<SlotId> slot = take();
  if (slot) ++aside_;
  return slot;
}

void StatePool::put_back(SlotId slot) {
  check(aside_ > 0 && leased_[slot], "a slot is put back once");
  leased_[slot] = false;
  free_.push_back(slot);
  --aside_;
}

void StatePool::release(SlotId slot) {
  check(slot >= 0 && slot < size() && leased_[slot], "a slot is released once, by its owner");
  leased_[slot] = false;
  free_.push_back(slot);
  ++released_;
  unclaimed_.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace runnel
