// A store keeps sessions outside of the process. Each session has a record (record.h) and a state.
// Several servers may share a store. Any thread may call any function. All functions block.
//
// - UNAVAILABLE: the store did not do it, or it is unknown whether it did.
// - RESOURCE_EXHAUSTED: the store is full.
// - DATA_LOSS: the record or its state is damaged.
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
  int64_t ttl_ms = 0;      // a session that was not used for this time is removed
  int64_t lease_ms = 0;    // how long the lease of a call lasts, unless it is renewed
  int64_t timeout_ms = 0;  // how long to wait for another server
};

// A state to save. `next` returns its bytes piece by piece. An empty piece is the end.
struct Snapshot {
  int64_t position = 0;
  std::function<std::string()> next;
};

// Gets the next bytes of a state that is being loaded.
using StateSink = std::function<Status(std::span<const std::byte>)>;

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  // A name for this object. No other object that uses the store has, or will ever have, this name.
  virtual const std::string& replica() const = 0;
  // Whether others than the servers may write to the store. A state that is loaded from it must
  // then have a seal.
  virtual bool needs_seals() const { return false; }

  // Begins a call that changes a session. The owner of `claim` is replica(), "/" and any text. A
  // replica may begin a call of a session only after its last call of this session has ended, so
  // the store ignores the replica's own lease.
  virtual Result<Begun> begin(const std::string& key, const Claim& claim) = 0;
  // The present record. None: there is no record.
  virtual Result<std::optional<Record>> look(const std::string& key) = 0;
  // Passes the state of `record` to `sink`. NOT_FOUND if another state has replaced it; DATA_LOSS;
  // errors of `sink`.
  virtual Status load(const std::string& key, const Record& record, const StateSink& sink) = 0;
  // Extends the lease. False: the call has ended, another one has begun, or the session was
  // deleted.
  virtual Result<bool> renew(const std::string& key, const Holder& holder) = 0;
  // Ends a call, with the present state of the session, or without a state if it has not changed.
  // False, and nothing changes, in the cases of renew().
  virtual Result<bool> end(const std::string& key, const Holder& holder,
                           const Snapshot* snapshot) = 0;
  // Ends a call in the same way, but with an entry of the log instead of a state.
  virtual Result<bool> log(const std::string& key, const Holder& holder, const LogEntry& entry) = 0;
  // Replaces the state and the log of a session at rest by the state after its last call, which was
  // saved with epoch `saved`. To be called once for an epoch, by the server that made this call,
  // because the name of the state has the epoch. False, and nothing changes: a call has begun
  // since, or the session was deleted.
  virtual Result<bool> settle(const std::string& key, int64_t saved, const Snapshot& snapshot) = 0;
  // Makes a session, with a state or empty. Returns the epoch of its record. 0: the session exists.
  // If `session` names a list, the session is in it until it is removed or expires.
  virtual Result<int64_t> create(const std::string& key, const NewSession& session,
                                 const Snapshot* snapshot) = 0;
  // Deletes a session, even if a call uses it. False: there is no such session.
  virtual Result<bool> remove(const std::string& key) = 0;

  // The ids of the sessions of a list (Record::list), in order, after `after`; at most `most`. A
  // session that has just ended may be among them: look() then finds no record.
  virtual Result<std::vector<std::string>> list(const std::string& list, const std::string& after,
                                                size_t most) = 0;

  // Removes files or keys that crashes and expired sessions have left. To be called at the start,
  // and from time to time.
  virtual Status sweep() = 0;
  // To be called about once a second. If the store syncs in intervals, it makes everything durable
  // that was written since the last call.
  virtual Status sync() = 0;
};

}  // namespace runnel
