// Counts the slots of one model that each account holds, and checks them against the account's
// quota.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/options.h"
#include "engine/request.h"

namespace runnel {

class AccountSlots {
 public:
  // `options` must outlive the object.
  explicit AccountSlots(const EngineOptions& options) : options_(options) {}

  // Adds `slots` to the number of slots that an account holds. `spare` of them belong to spare
  // sessions. Both may be negative.
  void add(const std::string& account, int slots, int spare);

  // Whether the account may hold `needed` more slots now.
  bool has_left(int needed, const Caller& caller) const;
  // Whether the account may hold `needed` more slots once all its spare sessions have been evicted.
  bool may_hold(int needed, const Caller& caller) const;
  // OK if may_hold(), else INVALID_ARGUMENT or RESOURCE_EXHAUSTED with the reason. `field` is the
  // field of the request that asks for the slots.
  Status check(int needed, const Caller& caller, std::string_view field) const;

 private:
  struct Slots {
    int held = 0;
    int spare = 0;  // the part of `held` that belongs to spare sessions
  };

  int64_t most_of(const Caller& caller) const;
  int64_t held_by(const Caller& caller) const;
  Slots slots_of(const Caller& caller) const;

  const EngineOptions& options_;
  std::map<std::string, Slots> slots_;  // by account; an account without slots has no entry
};

}  // namespace runnel
