// The streams that run, so that draining can wait for them and end what does not end by itself.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"

namespace runnel {

class LiveCalls {
 public:
  using Id = uint64_t;
  // Ends the call with a status; called from any thread, must not block.
  using End = std::function<void(const Status&)>;

  // Counts a call from here until leave().
  Id enter(End end);
  void leave(Id id);
  int count() const;

  // Waits until no call runs, no longer than `at_most`. True when none does.
  bool wait_until_none(Duration at_most);
  // Waits until no call runs and none has come for `quiet`, no longer than `at_most`.
  void wait_until_quiet(Duration quiet, Duration at_most);
  // Ends every call that runs.
  void end_all(const Status& status);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a call has come, or the last has gone
  std::map<Id, End> calls_;
  Id next_ = 1;
};

}  // namespace runnel
