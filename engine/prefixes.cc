#include "engine/prefixes.h"

#include <algorithm>

namespace runnel {
namespace {

int64_t most_states(const Model& model, const EngineOptions& options) {
  if (model.batch_changes_bits()) return 0;
  const int64_t state_bytes = model.layout().state_bytes;
  return std::min<int64_t>(options.prefix_cache_bytes / state_bytes, model.limits().slots);
}

}  // namespace

Prefixes::Prefixes(Model& model, StatePool& pool, const EngineOptions& options)
    : model_(model), pool_(pool), cache_(most_states(model, options)) {}

void Prefixes::keep(const PrefixKey& key, SlotId slot, TimePoint now, PrefixWorth worth) {
  if (cache_.use(key, now)) return;
  std::optional<SlotId> room = cache_.full() ? std::nullopt : pool_.set_aside();
  if (!room) room = cache_.surrender();
  if (!room) return;
  model_.copy(slot, *room, key.length);
  cache_.add(key, *room, now, worth);
}

bool Prefixes::load(const PrefixKey& key, SlotId slot, TimePoint now) {
  const std::optional<SlotId> kept = cache_.use(key, now);
  if (kept) model_.copy(*kept, slot, key.length);
  return kept.has_value();
}

bool Prefixes::make_room(const PrefixKey& key, TimePoint now) {
  if (cache_.use(key, now)) return false;
  if (cache_.full()) pool_.put_back(*cache_.surrender());
  return true;
}

void Prefixes::hand_over(const PrefixKey& key, TimePoint now, PrefixWorth worth) {
  cache_.add(key, *pool_.set_aside(), now, worth);
}

void Prefixes::make_way() {
  if (!pool_.all_aside()) return;
  if (const auto slot = cache_.surrender()) pool_.put_back(*slot);
}

void Prefixes::expire(TimePoint since) {
  while (const auto slot = cache_.expire(since)) pool_.put_back(*slot);
}

}  // namespace runnel
