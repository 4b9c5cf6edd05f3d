// The slots of one model that each account holds, and how many it may hold.
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
  // `options` outlives it.
  explicit AccountSlots(const EngineOptions& options) : options_(options) {}

  // Adds to the slots of an account, and to those of its spare sessions.
  void add(const std::string& account, int slots, int spare);

  // Whether the account has that many slots left.
  bool has_left(int needed, const Caller& caller) const;
  // The same after its spare sessions have been given up.
  bool may_hold(int needed, const Caller& caller) const;
  // Why it may not: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. `field` asks for the slots.
  Status check(int needed, const Caller& caller, std::string_view field) const;

 private:
  struct Slots {
    int held = 0;
    int spare = 0;  // of them, of spare sessions
  };

  int64_t most_of(const Caller& caller) const;
  int64_t held_by(const Caller& caller) const;
  Slots slots_of(const Caller& caller) const;

  const EngineOptions& options_;
  std::map<std::string, Slots> slots_;  // by account, of those that hold any
};

}  // namespace runnel
