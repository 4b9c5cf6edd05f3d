// Who makes a call, and what they may use. The door that a call comes through makes its Caller
// once, from the key that the client shows or from its address, and the call carries it to
// sessions, slots and rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace runnel {

class AccountUsage;

// The quotas of one account that are looked at when a call begins. Without a number: whatever
// there is.
struct CallerLimits {
  std::optional<int64_t> calls;     // streams at a time
  std::optional<int64_t> sessions;  // states at a time, in place of sessions_per_caller

  friend bool operator==(const CallerLimits&, const CallerLimits&) = default;
};

struct Caller {
  std::string name;     // owns sessions: the key's name; empty where there are no keys
  std::string account;  // has the quotas and takes turns with others: the key's name; without keys
                        // the network that the peer's address belongs to
  std::optional<std::set<std::string>> models;  // none: every model
  bool admin = false;                           // may change what is served
  CallerLimits limits;
  std::shared_ptr<AccountUsage> usage;  // of the account, with its pace; null without keys
  uint64_t key = 0;                     // which key of that name

  bool may_use(const std::string& model) const { return !models || models->contains(model); }
};

}  // namespace runnel
