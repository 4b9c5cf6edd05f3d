// The quota of calls that an account may run at a time.
#pragma once

#include <memory>

#include "base/status.h"
#include "engine/caller.h"

namespace runnel {

// Counts one call, from begin() until end() or, without that, until the object is destroyed.
class CallQuota {
 public:
  CallQuota() = default;
  CallQuota(const CallQuota&) = delete;
  CallQuota& operator=(const CallQuota&) = delete;
  ~CallQuota() { end(); }

  // RESOURCE_EXHAUSTED if the caller's account already runs as many calls as it may.
  Status begin(const Caller& caller);
  // To be called at most once.
  void end();

 private:
  std::shared_ptr<AccountUsage> counted_;  // where the call is counted; null: not counted
};

}  // namespace runnel
