// The streams that run, so that draining can wait for them and end what does not end by itself.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace runnel {

class LiveCalls {
 public:
  using Id = uint64_t;
  // What can be done to a call from outside, from any thread; none of it blocks. A call that is
  // over ignores it.
  struct Handle {
    std::function<void(const Status&)> end;  // ends it with a status
    std::function<void(Duration)> cut_off;   // ... without one, if a write has been out for so long
  };

  // Counts a call from here until leave().
  Id enter(Handle handle);
  void leave(Id id);
  int count() const;

  // Waits until no call runs, no longer than `at_most`. True when none does.
  bool wait_until_none(Duration at_most);
  // Waits until no call runs and none has come for `quiet`, no longer than `at_most`.
  void wait_until_quiet(Duration quiet, Duration at_most);
  // Ends every call that runs.
  void end_all(const Status& status);
  // Cuts off every call whose reader has taken nothing for `limit`.
  void cut_off_stalled(Duration limit);

 private:
  std::vector<Handle> handles() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a call has come, or the last has gone
  std::map<Id, Handle> calls_;
  Id next_ = 1;
};

}  // namespace runnel
