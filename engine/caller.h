// The client that makes a call, and its permissions and quotas. The door that receives a call makes
// its Caller from the key that the client sends, or from its address. The call carries the Caller
// through the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace runnel {

class AccountUsage;

// The quotas of an account that are checked when a call begins. None: the account has no such
// quota.
struct CallerLimits {
  std::optional<int64_t> calls;     // streams at a time
  std::optional<int64_t> sessions;  // states at a time, in place of sessions_per_caller

  friend bool operator==(const CallerLimits&, const CallerLimits&) = default;
};

struct Caller {
  std::string name;     // the owner of sessions: the key's name; empty if the server has no keys
  std::string account;  // has the quotas, and takes turns with other accounts: the key's name, or
                        // without keys the network of the client's address
  std::optional<std::set<std::string>> models;  // none: every model
  bool admin = false;                           // may change which models are served
  CallerLimits limits;
  std::shared_ptr<AccountUsage> usage;  // of the account; null without keys
  uint64_t key = 0;                     // tells apart the keys of one name

  bool may_use(const std::string& model) const { return !models || models->contains(model); }
};

}  // namespace runnel
