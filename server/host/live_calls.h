// The running streams. Draining waits for them to finish, and then ends the remaining ones.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace runnel {

// A running call as other threads see it. Neither function blocks, and a call that has ended
// ignores both.
class LiveCall {
 public:
  virtual ~LiveCall() = default;
  // Ends the call with `status`, after any message that is already being sent.
  virtual void end(const Status& status) = 0;
  // Applies the call's time limits.
  virtual void tend(TimePoint now) = 0;
};

class LiveCalls {
 public:
  // Counts and keeps a call until leave().
  void enter(std::shared_ptr<LiveCall> call);
  void leave(const std::shared_ptr<LiveCall>& call);
  int count() const;

  // Waits until no call runs, no longer than `at_most`. True when none does.
  bool wait_until_none(Duration at_most);
  // Waits until no call runs and none has come for `quiet`, no longer than `at_most`.
  void wait_until_quiet(Duration quiet, Duration at_most);
  // LiveCall::end() and tend() for every call that runs.
  void end_all(const Status& status);
  void tend_all(TimePoint now);

 private:
  std::vector<std::shared_ptr<LiveCall>> calls() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a call has come, or the last has gone
  std::set<std::shared_ptr<LiveCall>> calls_;
  uint64_t entered_ = 0;  // calls so far
};

}  // namespace runnel
