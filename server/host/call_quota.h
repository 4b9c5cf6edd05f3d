// The quota of calls that an account may run at a time.
#pragma once

#include <memory>

#include "base/status.h"
#include "engine/caller.h"

namespace runnel {

// Counts one call from begin() to end(), or to its own end.
class CallQuota {
 public:
  CallQuota() = default;
  CallQuota(const CallQuota&) = delete;
  CallQuota& operator=(const CallQuota&) = delete;
  ~CallQuota() { end(); }

  // RESOURCE_EXHAUSTED where the caller's account runs as many calls as it may.
  Status begin(const Caller& caller);
  // Once, or not at all.
  void end();

 private:
  std::shared_ptr<AccountUsage> counted_;  // null: nothing is
};

}  // namespace runnel
