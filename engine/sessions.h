// The sessions of one engine and the slots that hold their states. Nothing else leases, frees or
// sets a slot.
//
// A call first resolves the session that it starts from, then opens the sessions that it works on.
// A named session is in the table and outlives its calls; an anonymous one ends with its call.
//
// A session at rest that is saved outside of the engine is spare: its slot counts as free, and the
// session ends when that slot is needed, or one more of its account's quota. Free slots and kept
// prefixes go first.
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
  // `model` and `options` outlive it.
  Sessions(Model& model, const EngineOptions& options);

  // --- From any thread ---

  int slots() const { return pool_.size(); }
  // Claims slots for a call on its way to the scheduler. RESOURCE_EXHAUSTED when they are not free.
  // Here and below, `field` is the one of the request that asks for the slots, if any does.
  Status claim(int slots, std::string_view field = {});
  // Returns a claim: the call has arrived, and leases by itself, or it never will.
  void give_up(int slots) { pool_.give_up(slots); }

  // Leased slots by the states of their sessions, without those of spare sessions.
  std::array<int64_t, kSlotStates> slots_by_state() const;

  // --- The scheduler's thread ---

  int free_slots() const { return pool_.free(); }
  // Free, and not claimed by a call that is on its way.
  int unclaimed_slots() const { return pool_.unclaimed(); }
  // Slots that have come free since the start.
  int64_t freed_slots() const { return pool_.released(); }
  // Whether the account's quota allows this many more slots, whatever is free. Its own spare
  // sessions make room.
  bool may_hold(int needed, const Caller& caller) const {
    return accounts_.may_hold(needed, caller);
  }
  // Why a call cannot have this many slots now; OK: it can.
  Status check_room(int needed, const Caller& caller, std::string_view field = {}) const;
  // Counts `needed` slots against the account's quota; that many sessions must be opened next.
  // RESOURCE_EXHAUSTED, without a count, when fewer slots are free, or the account may not hold so
  // many more.
  Status take_room(int needed, const Caller& caller, std::string_view field = {});

  // Null when there is none.
  Session* find(const SessionKey& key) { return table_.find(key); }
  // The session that a call is about or starts from, as `field` names it (no_session()). NOT_FOUND;
  // ABORTED while another call runs on it.
  Result<Session*> resolve(const SessionKey& key, std::string_view field);
  // The stored state of that name, that a call starts from. NOT_FOUND.
  Result<Session*> resolve_state(const std::string& name);
  // The session is not spare from here on: a call needs it.
  void hold(Session& session);
  // The session is spare from here on, as the last of all, if it rests and is saved.
  void lend(Session& session);

  // A new session under `key`, which must be free, in room that was taken; an empty id: one of 128
  // random bits. The state is undefined until reset() or copy().
  Session& open(SessionKey key, const Caller& caller);
  // The same without a name, for one call alone.
  Session& open_anonymous(const Caller& caller);
  // A stored state, which never expires and counts against nobody. ALREADY_EXISTS,
  // RESOURCE_EXHAUSTED.
  Result<Session*> open_state(const std::string& name);
  // Makes the session an empty sequence: zeroes its state.
  void reset(const Session& session);
  // Copies state, position and pending value.
  void copy(const Session& from, Session& to);
  // Says where a state stands that comes into the session by a move.
  void stand(Session& session, int64_t position, int32_t pending);
  // The session knows `values`, which come after those that it knew.
  void know(Session& session, std::span<const int32_t> values);
  // Writes position and pending value to the slot, beside the rest of `control`, and the penalties
  // if there are any.
  void set(const Session& session, Control control, Penalized penalized = {});

  // What happens to the session, which must not be its end.
  void apply(Session& session, SessionEvent event);
  // Ends the use of a session by a call: an anonymous session ends, a named one rests. The state of
  // an anonymous one is kept if `key` says what it has consumed.
  void give_back(Session& session, TimePoint now, const PrefixKey* key = nullptr,
                 PrefixWorth worth = PrefixWorth::kAnswer);
  // States of prompts, in free slots.
  Prefixes& prefixes() { return prefixes_; }
  const Prefixes& prefixes() const { return prefixes_; }
  // The history to which sessions can be rewound.
  Rewinds& rewinds() { return rewinds_; }
  const Rewinds& rewinds() const { return rewinds_; }

  // Ends a named session and frees its name. No call may run on it.
  void forget(Session& session);
  // Ends the named sessions that have rested for the idle timeout, and gives up prefixes that have
  // not been used for as long; looks once a second.
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
  std::map<std::string, Session> states_;  // stored ones, by name
  std::atomic<int> stored_{0};             // size of states_, for any thread
  std::vector<Session> anonymous_;         // by slot
  AccountSlots accounts_;
  uint64_t uses_ = 0;  // Session::used of the last one
  SpareSessions spare_;
  std::array<Gauge, kSlotStates> by_state_;  // of leased slots that are not lent
  TimePoint next_expiry_{};
};

// Keeps a session from being given up while a call that starts from it leases slots.
class HeldSource {
 public:
  // `sessions` outlives it, and so does the session until it moves; null: there is none.
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
