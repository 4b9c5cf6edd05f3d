// The states of prompts that are kept in free slots (engine/prefix_cache.h): copies them in and out
// and sets slots aside for them.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/options.h"
#include "engine/prefix_cache.h"
#include "engine/state_pool.h"

namespace runnel {

class Prefixes {
 public:
  // All of them outlive it. Keeps nothing where the bits of a prompt depend on what else is in a
  // batch, since a warm answer could then differ from a cold one.
  Prefixes(Model& model, StatePool& pool, const EngineOptions& options);

  // From any thread: of the states that are kept.
  int64_t bytes() const { return cache_.size() * model_.layout().state_bytes; }

  // --- The scheduler's thread ---

  bool on() const { return cache_.on(); }
  PrefixCache& cache() { return cache_; }

  // Keeps a copy of the state in `slot`, which has consumed the values of `key`, if there is room
  // for it or another one to give up.
  void keep(const PrefixKey& key, SlotId slot, TimePoint now, PrefixWorth worth);
  // Copies the state of `key` into `slot`. False, without a change, if it is not kept any more.
  [[nodiscard]] bool load(const PrefixKey& key, SlotId slot, TimePoint now);
  // Prepares hand_over(): true if the state of `key` is to be kept in the slot that is released
  // next.
  [[nodiscard]] bool make_room(const PrefixKey& key, TimePoint now);
  // Keeps the state in the slot that was released last, after make_room().
  void hand_over(const PrefixKey& key, TimePoint now, PrefixWorth worth);
  // Gives up a state where all free slots have one, so that a slot can be leased.
  void make_way();
  // Gives up the states that were last used before `since`.
  void expire(TimePoint since);

 private:
  Model& model_;
  StatePool& pool_;
  PrefixCache cache_;
};

}  // namespace runnel
