// The sessions of one engine and the slots that hold their states. Only this class leases, frees or
// sets slots.
//
// A call first resolves the session that it starts from, then opens the sessions that it works on.
// A named session is in the table and outlives its calls. An anonymous session ends with its call.
//
// A session is spare while no call runs on it and its state is saved outside of the engine. Its
// slot counts as free, because the session can end here and be loaded again.
// - A call that needs a slot takes an unused one. If there is none, it takes the slot of a kept
//   prefix. If there is none either, the spare session that has been at rest for longest ends, and
//   the call takes its slot.
// - If a call needs more slots than its account's quota has left, spare sessions of this account
//   end until the quota has room.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "engine/account_slots.h"
#include "engine/options.h"
#include "engine/prefixes.h"
#include "engine/rewinds.h"
#include "engine/session_table.h"
#include "engine/spare_sessions.h"
#include "engine/state_pool.h"

namespace runnel {

class Sessions {
 public:
  // `model` and `options` must outlive the object.
  Sessions(Model& model, const EngineOptions& options);

  // --- From any thread ---

  int slots() const { return pool_.size(); }
  // Claims slots for a call on its way to the scheduler. RESOURCE_EXHAUSTED if too few are free.
  // Here and below, `field` is the field of the request that asks for the slots, or empty.
  Status claim(int slots, std::string_view field = {});
  // Returns a claim, either because the call has arrived and now leases its slots, or because it
  // will never arrive.
  void give_up(int slots) { pool_.give_up(slots); }

  // The number of leased slots in each state of a session. Slots of spare sessions are not counted.
  std::array<int64_t, kSlotStates> slots_by_state() const;

  // --- The scheduler's thread ---

  int free_slots() const { return pool_.free(); }
  // Free slots that no call on its way to the scheduler has claimed.
  int unclaimed_slots() const { return pool_.unclaimed(); }
  // How many times a slot has become free since the start.
  int64_t freed_slots() const { return pool_.released(); }
  // Whether the account's quota allows this many more slots. It does not matter whether slots are
  // free. Slots of the account's spare sessions do not count, because take_room() may end these
  // sessions.
  bool may_hold(int needed, const Caller& caller) const {
    return accounts_.may_hold(needed, caller);
  }
  // OK if a call can have this many slots now, else the reason why it cannot.
  Status check_room(int needed, const Caller& caller, std::string_view field = {}) const;
  // Counts `needed` slots against the account's quota. The caller must open as many sessions next.
  // RESOURCE_EXHAUSTED, and nothing is counted, if too few slots are free or the quota does not
  // allow them.
  Status take_room(int needed, const Caller& caller, std::string_view field = {});

  // Null when there is none.
  Session* find(const SessionKey& key) { return table_.find(key); }
  // The session that a call works on or starts from. `field` is the field that names the session
  // (no_session()). NOT_FOUND; ABORTED while another call runs on the session.
  Result<Session*> resolve(const SessionKey& key, std::string_view field);
  // The stored state of this name, from which a call starts. NOT_FOUND.
  Result<Session*> resolve_state(const std::string& name);
  // Takes the session out of the spare sessions, so that it does not end while a call uses it.
  void hold(Session& session);
  // Makes the session spare if it is at rest and saved. The other spare sessions end before it.
  void lend(Session& session);

  // Opens a new session in a slot that take_room() has counted. `key` must be free. If its id is
  // empty, the session gets an id of 128 random bits. Its state is undefined until reset() or
  // copy().
  Session& open(SessionKey key, const Caller& caller);
  // Opens a session without a name, for one call alone.
  Session& open_anonymous(const Caller& caller);
  // Opens a stored state. It never expires and counts against no quota. ALREADY_EXISTS,
  // RESOURCE_EXHAUSTED.
  Result<Session*> open_state(const std::string& name);
  // Makes the session an empty sequence: zeroes its state.
  void reset(const Session& session);
  // Copies state, position and pending value.
  void copy(const Session& from, Session& to);
  // Sets the position and the pending value of a state that a move puts into the session.
  void stand(Session& session, int64_t position, int32_t pending);
  // Appends `values` to the session's sequence. The last one becomes its pending value.
  void know(Session& session, std::span<const int32_t> values);
  // Writes `control` to the slot, with the session's own position and pending value, and the
  // penalties if there are any.
  void set(const Session& session, Control control, Penalized penalized = {});

  // Changes the phase of the session after an event, which must not end the session.
  void apply(Session& session, SessionEvent event);
  // Ends the use of a session by a call. A named session is then at rest. An anonymous session
  // ends, and its state is kept as a prefix if `key` says which values it has consumed.
  void give_back(Session& session, TimePoint now, const PrefixKey* key = nullptr,
                 PrefixWorth worth = PrefixWorth::kAnswer);
  // The kept states of prompts, which are in free slots.
  Prefixes& prefixes() { return prefixes_; }
  const Prefixes& prefixes() const { return prefixes_; }
  // The history to which sessions can be rewound.
  Rewinds& rewinds() { return rewinds_; }
  const Rewinds& rewinds() const { return rewinds_; }

  // Ends a named session and frees its name. No call may run on it.
  void forget(Session& session);
  // Ends the named sessions that have been at rest for the idle timeout, and evicts the prefixes
  // that have not been used for as long. Does so at most once a second.
  void expire(TimePoint now);

  // ALREADY_EXISTS, RESOURCE_EXHAUSTED.
  Result<SessionInfo> create(SessionKey key, const Caller& caller, TimePoint now);
  // NOT_FOUND.
  Result<SessionInfo> get(const SessionKey& key, TimePoint now);
  SessionPage page(const std::string& owner, const std::string& after, int count,
                   TimePoint now) const;

 private:
  std::string unused_id(const std::string& owner);
  Status too_few(int needed, std::string_view field) const;
  SlotId lease(const Caller& caller);
  Gauge& gauge(SessionPhase state);
  void end(Session& session);

  Model& model_;
  const EngineOptions& options_;
  Rewinds rewinds_;
  StatePool pool_;
  Prefixes prefixes_;
  SessionTable table_;
  std::map<std::string, Session> states_;  // stored states, by name
  std::atomic<int> stored_{0};             // the size of states_, which any thread may read
  std::vector<Session> anonymous_;         // by slot
  AccountSlots accounts_;
  uint64_t uses_ = 0;  // Session::used of the last one
  SpareSessions spare_;
  std::array<Gauge, kSlotStates> by_state_;  // leased slots, except slots of spare sessions
  TimePoint next_expiry_{};
};

// While the object exists, the session is not ended to free its slot. For a call that starts from
// this session and leases slots of its own.
class HeldSource {
 public:
  // `sessions` must outlive the object. `session` must not end before the object does; null: the
  // call starts from no session.
  HeldSource(Sessions& sessions, Session* session) : sessions_(sessions), session_(session) {
    if (session != nullptr) sessions.hold(*session);
  }
  HeldSource(const HeldSource&) = delete;
  HeldSource& operator=(const HeldSource&) = delete;
  ~HeldSource() {
    if (session_ != nullptr) sessions_.lend(*session_);
  }

 private:
  Sessions& sessions_;
  Session* const session_;
};

}  // namespace runnel
