#include "engine/account_slots.h"

#include <limits>

#include "engine/account_usage.h"
#include "engine/refusals.h"

namespace runnel {

void AccountSlots::add(const std::string& account, int slots, int spare) {
  const auto entry = slots_.try_emplace(account).first;
  entry->second.held += slots;
  entry->second.spare += spare;
  if (entry->second.held == 0) slots_.erase(entry);
}

bool AccountSlots::has_left(int needed, const Caller& caller) const {
  return held_by(caller) <= most_of(caller) - needed;
}

bool AccountSlots::may_hold(int needed, const Caller& caller) const {
  return held_by(caller) - slots_of(caller).spare <= most_of(caller) - needed;
}

Status AccountSlots::check(int needed, const Caller& caller, std::string_view field) const {
  if (may_hold(needed, caller)) return {};
  const int64_t held = held_by(caller) - slots_of(caller).spare;
  const int64_t most = most_of(caller);
  if (!caller.limits.sessions) return share_used_up(needed, held, most, field);
  return states_used_up(caller.account, needed, held, most, field);
}

// The maximum number of slots that the account may hold: of all models together if its key has a
// quota, else of this model.
int64_t AccountSlots::most_of(const Caller& caller) const {
  const int64_t share = options_.sessions_per_caller;
  return caller.limits.sessions.value_or(share == 0 ? std::numeric_limits<int64_t>::max() : share);
}

// The slots that the account holds, counted over the same models as in most_of().
int64_t AccountSlots::held_by(const Caller& caller) const {
  if (!caller.limits.sessions) return slots_of(caller).held;
  return caller.usage ? caller.usage->states() : 0;
}

AccountSlots::Slots AccountSlots::slots_of(const Caller& caller) const {
  const auto found = slots_.find(caller.account);
  return found == slots_.end() ? Slots() : found->second;
}

}  // namespace runnel
