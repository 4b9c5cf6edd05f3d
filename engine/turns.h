// How accounts take turns at the rows of a step, and how fast each may go. Shares of steps are
// numbered as they are given, over all plans: the account with the lowest number was served longest
// ago.
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

// The turns of an account whose calls run. The calls share it.
struct AccountTurns {
  Account account;
  std::shared_ptr<AccountUsage> usage;  // null where there are no keys
  uint64_t gathered = 0;                // the last plan in which it had candidates
  int index = 0;                        // of the account in that plan

  // Counts values that a call of the account was given or has sampled.
  void charge(int64_t values, TimePoint now) const {
    if (usage) usage->charge(values, now);
  }
};

class Turns {
 public:
  // A plan has at most `candidates`.
  explicit Turns(int64_t candidates);

  // The turns of the caller's account. An account without running calls joins the end of the round.
  std::shared_ptr<AccountTurns> join(const Caller& caller);
  // Forgets the accounts that have no running calls.
  void forget_unused();
  // The number of the last share that was given.
  uint64_t last_share() const { return shares_; }

  // --- Each plan ---

  void begin_plan();
  // True where the account has had more values than its quota allows by now. Its rows are left out
  // of this plan.
  bool is_ahead(const AccountTurns& turns, TimePoint now) {
    if (turns.usage == nullptr || turns.usage->behind(now) <= Duration(0)) return false;
    paces_ = true;
    return true;
  }
  // Whether an account was left out of this plan.
  bool paces() const { return paces_; }
  // The index of the account in accounts(), where this adds it if needed.
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
  // Numbers a share that the plan gives to the account: to a prompt or to given values where
  // `feeds`, else to a sample.
  uint64_t give_share(AccountTurns& turns, bool feeds) {
    turns.account.served = ++shares_;
    if (feeds) turns.account.fed = shares_;
    return shares_;
  }

 private:
  std::map<std::string, std::shared_ptr<AccountTurns>> turns_;  // of accounts with running calls
  std::vector<Account> accounts_;
  uint64_t plans_ = 0;   // made so far, this one included
  uint64_t shares_ = 0;  // given so far
  bool paces_ = false;
};

}  // namespace runnel
