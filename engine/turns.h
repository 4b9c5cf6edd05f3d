// Decides in which order accounts take turns at the rows of a step, and when an account must wait
// because of its quota of values a second. Shares of steps have numbers, which increase over all
// plans: the account with the lowest number was served longest ago.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/account_usage.h"
#include "engine/caller.h"
#include "engine/planner.h"

namespace runnel {

// The turns of an account that has running calls. The calls share this object.
struct AccountTurns {
  Account account;
  std::shared_ptr<AccountUsage> usage;  // null if the server has no keys
  uint64_t gathered = 0;                // the last plan in which the account had candidates
  int index = 0;                        // the account's index in that plan

  // Counts values that a call of the account has consumed or sampled.
  void charge(int64_t values, TimePoint now) const {
    if (usage) usage->charge(values, now);
  }
};

class Turns {
 public:
  // `candidates`: the maximum number of candidates of a plan.
  explicit Turns(int64_t candidates);

  // The turns of the caller's account. An account without running calls joins the end of the round.
  std::shared_ptr<AccountTurns> join(const Caller& caller);
  // Forgets the accounts that have no running calls.
  void forget_unused();
  // The number of the last share that was given.
  uint64_t last_share() const { return shares_; }

  // --- Each plan ---

  void begin_plan();
  // Whether the account has had more values than its quota allows by now. If so, its rows must be
  // left out of this plan.
  bool is_ahead(const AccountTurns& turns, TimePoint now) {
    if (turns.usage == nullptr || turns.usage->behind(now) <= Duration(0)) return false;
    paces_ = true;
    return true;
  }
  // Whether an account was left out of this plan.
  bool paces() const { return paces_; }
  // The index of the account in accounts(). Adds the account if it is not there yet.
  int index_of(AccountTurns& turns) {
    if (turns.gathered != plans_) {
      turns.gathered = plans_;
      turns.index = static_cast<int>(accounts_.size());
      accounts_.push_back(turns.account);
    }
    return turns.index;
  }
  // The accounts with candidates in this plan.
  std::span<const Account> accounts() const { return accounts_; }
  // Returns the number of a new share, which the plan gives to the account. `feeds`: the share is
  // for a prompt or for values to score, and not for a sample.
  uint64_t give_share(AccountTurns& turns, bool feeds) {
    turns.account.served = ++shares_;
    if (feeds) turns.account.fed = shares_;
    return shares_;
  }

 private:
  std::map<std::string, std::shared_ptr<AccountTurns>> turns_;  // of accounts with running calls
  std::vector<Account> accounts_;
  uint64_t plans_ = 0;   // plans so far, including this one
  uint64_t shares_ = 0;  // shares given so far
  bool paces_ = false;
};

}  // namespace runnel
