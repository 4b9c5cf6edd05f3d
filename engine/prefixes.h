// Keeps states of prompts in free slots (engine/prefix_cache.h): copies states to and from these
// slots, and sets the slots aside.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/options.h"
#include "engine/prefix_cache.h"
#include "engine/state_pool.h"

namespace runnel {

class Prefixes {
 public:
  // All arguments must outlive the object. If the bits of a sequence depend on the other rows of
  // its batch, no state is kept, because an answer from a kept state could then differ.
  Prefixes(Model& model, StatePool& pool, const EngineOptions& options);

  // The bytes of the states that are kept. Any thread may call this.
  int64_t bytes() const { return cache_.size() * model_.layout().state_bytes; }

  // --- The scheduler's thread ---

  bool on() const { return cache_.on(); }
  PrefixCache& cache() { return cache_; }

  // Keeps a copy of the state in `slot`, which has consumed the values of `key`. Evicts
  // another state if there is no room, and does nothing if none can be evicted.
  void keep(const PrefixKey& key, SlotId slot, TimePoint now, PrefixWorth worth);
  // Copies the state of `key` into `slot`. False, and nothing changes, if it is no longer kept.
  [[nodiscard]] bool load(const PrefixKey& key, SlotId slot, TimePoint now);
  // Makes room for the state of `key`. True: the caller must release the slot with this state next,
  // and then call hand_over(). False: the state is kept already.
  [[nodiscard]] bool make_room(const PrefixKey& key, TimePoint now);
  // Keeps the state in the slot that was released last. To be called after make_room().
  void hand_over(const PrefixKey& key, TimePoint now, PrefixWorth worth);
  // Evicts a state if all free slots have one, so that a slot can be leased.
  void make_way();
  // Evicts the states that were last used before `since`.
  void expire(TimePoint since);

 private:
  Model& model_;
  StatePool& pool_;
  PrefixCache cache_;
};

}  // namespace runnel
