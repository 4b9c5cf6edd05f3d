// A store keeps sessions outside of the process: for each a record (record.h) and a state. Several
// servers may share one. Every function may be called from any thread, and blocks.
//
// UNAVAILABLE: the store did not do it, or nobody knows whether it did. RESOURCE_EXHAUSTED: it is
// full. DATA_LOSS: the record or its state is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "storage/record.h"

namespace runnel {

struct StoreTimes {
  int64_t ttl_ms = 0;      // after which a session that nobody uses is removed
  int64_t lease_ms = 0;    // of a call, unless it is renewed
  int64_t timeout_ms = 0;  // of a wait for another server
};

// A state that is to be saved. `next` gives its bytes piece by piece; an empty piece is the end.
struct Snapshot {
  int64_t position = 0;
  std::function<std::string()> next;
};

// Takes the next bytes of a state that is loaded.
using StateSink = std::function<Status(std::span<const std::byte>)>;

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  // Names this object among all that use the store, and never another one again.
  virtual const std::string& replica() const = 0;

  // Begins a call that changes a session. The owner of `claim` is replica(), "/" and any text. A
  // replica begins a call of a session only when its last one is over: its own lease never counts.
  virtual Result<Begun> begin(const std::string& key, const Claim& claim) = 0;
  // The record as it is; none if there is none.
  virtual Result<std::optional<Record>> look(const std::string& key) = 0;
  // Hands the state of `record` to `sink`. NOT_FOUND if another state has replaced it; DATA_LOSS;
  // errors of `sink`.
  virtual Status load(const std::string& key, const Record& record, const StateSink& sink) = 0;
  // Extends the lease. False: the call is over, another has begun, or the session was deleted.
  virtual Result<bool> renew(const std::string& key, const Holder& holder) = 0;
  // Ends a call, with the state that the session has now, or without one if it has not changed.
  // False, and nothing has changed: as for renew().
  virtual Result<bool> end(const std::string& key, const Holder& holder,
                           const Snapshot* snapshot) = 0;
  // Ends a call likewise, with an entry of the log in place of a state.
  virtual Result<bool> log(const std::string& key, const Holder& holder, const LogEntry& entry) = 0;
  // Replaces state and log of a session at rest by the state after its last call, which was saved
  // with epoch `saved`. To be called once for an epoch, by the server that made this call: the
  // state is named after it. False, and nothing has changed: a call has begun since, or the session
  // was deleted.
  virtual Result<bool> settle(const std::string& key, int64_t saved, const Snapshot& snapshot) = 0;
  // A new session, with a state or empty. Returns the epoch of its record; 0: there is one already.
  // If `session` names a list, the session is in it until it is removed or expires.
  virtual Result<int64_t> create(const std::string& key, const NewSession& session,
                                 const Snapshot* snapshot) = 0;
  // Deletes a session, whoever uses it. False: there is none.
  virtual Result<bool> remove(const std::string& key) = 0;

  // The ids of the sessions of a list (Record::list), in order, after `after`; at most `most`. A
  // session that has just ended may be among them: look() then finds no record.
  virtual Result<std::vector<std::string>> list(const std::string& list, const std::string& after,
                                                size_t most) = 0;

  // Removes what crashes and expired sessions have left. To be called at the start, and now and
  // then.
  virtual Status sweep() = 0;
  // To be called about once a second: makes durable what was written since the last time, if the
  // store does that by intervals.
  virtual Status sync() = 0;
};

}  // namespace runnel
