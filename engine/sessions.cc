#include "engine/sessions.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/fields.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/text.h"
#include "engine/account_usage.h"
#include "engine/refusals.h"

namespace runnel {
namespace {

constexpr Duration kExpiryInterval = std::chrono::seconds(1);

// While the result exists, one of the states that take_room() has counted stays counted.
std::shared_ptr<const void> counted_for(const Caller& caller) {
  if (caller.usage == nullptr) return nullptr;
  return {caller.usage.get(), [usage = caller.usage](const void*) { usage->end_state(); }};
}

}  // namespace

Sessions::Sessions(Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      rewinds_(model, options),
      pool_(rewinds_.sessions()),
      prefixes_(model, pool_, options),
      anonymous_(static_cast<size_t>(pool_.size())),
      accounts_(options),
      spare_(pool_.size()) {}

Status Sessions::claim(int slots, std::string_view field) {
  if (slots == 0 || pool_.claim(slots)) return {};
  return too_few(slots, field);
}

// A stored state keeps its slot permanently.
Status Sessions::too_few(int needed, std::string_view field) const {
  return no_room(needed, pool_.unclaimed(), pool_.size(), stored_.load(), field);
}

Status Sessions::take_room(int needed, const Caller& caller, std::string_view field) {
  if (needed == 0) return {};
  if (Status s = check_room(needed, caller, field); !s.ok()) return s;
  for (Session* own = nullptr; !accounts_.has_left(needed, caller); forget(*own)) {
    own = spare_.oldest(caller.account);
    if (own == nullptr) break;
  }
  // begin_states() comes last, because it counts the states. It also counts them if the account has
  // no quota, because the account may get one while the sessions exist.
  if (caller.usage == nullptr) return {};
  const int64_t most = caller.limits.sessions.value_or(std::numeric_limits<int64_t>::max());
  if (caller.usage->begin_states(needed, most)) return {};
  return states_used_up(caller.account, needed, caller.usage->states(), most, field);
}

Status Sessions::check_room(int needed, const Caller& caller, std::string_view field) const {
  if (Status s = accounts_.check(needed, caller, field); !s.ok()) return s;
  if (needed > pool_.free()) return too_few(needed, field);
  return {};
}

Result<Session*> Sessions::resolve(const SessionKey& key, std::string_view field) {
  Session* session = table_.find(key);
  if (session == nullptr) return no_session(key.id, field);
  if (!session->resting()) {
    Status status(Code::kAborted,
                  "session '" + key.id + "' is busy with another call; wait until that one ends");
    return status.with_retry_after(std::chrono::milliseconds(100));
  }
  return session;
}

Result<Session*> Sessions::resolve_state(const std::string& name) {
  const auto found = states_.find(name);
  if (found != states_.end() && found->second.resting()) return &found->second;
  return no_stored_state(name);
}

std::string Sessions::unused_id(const std::string& owner) {
  std::string id;
  do {
    id = random_session_id();
  } while (table_.find({owner, id}) != nullptr);
  return id;
}

SlotId Sessions::lease(const Caller& caller) {
  prefixes_.make_way();
  Session* const spare = pool_.all_aside() ? spare_.oldest() : nullptr;
  if (spare != nullptr) forget(*spare);
  const std::optional<SlotId> slot = pool_.lease();
  check(slot.has_value(), "a session is opened where a slot is free");
  gauge(SessionPhase::kNew).add(1);
  accounts_.add(caller.account, 1, 0);
  return *slot;
}

Session& Sessions::open(SessionKey key, const Caller& caller) {
  if (key.id.empty()) key.id = unused_id(key.owner);
  Session session;
  session.key = std::move(key);
  session.account = caller.account;
  session.counted = counted_for(caller);
  session.used = ++uses_;
  session.slot = lease(caller);
  return *table_.insert(std::move(session));
}

Result<Session*> Sessions::open_state(const std::string& name) {
  if (pool_.free() == 0) return no_room(1, pool_.unclaimed(), pool_.size(), 0);
  const auto [entry, is_new] = states_.try_emplace(name);
  if (!is_new) return Status(Code::kAlreadyExists, "two stored states are named " + quote(name));
  Session& session = entry->second;
  session.key.id = name;
  session.stored = true;
  stored_.fetch_add(1);
  session.slot = lease({});
  return &session;
}

Session& Sessions::open_anonymous(const Caller& caller) {
  const SlotId slot = lease(caller);
  Session& session = anonymous_[slot];
  session = {};
  session.account = caller.account;
  session.counted = counted_for(caller);
  session.slot = slot;
  return session;
}

void Sessions::reset(const Session& session) {
  model_.set(session.slot, {}, true);
  rewinds_.begin(session, true);
}

void Sessions::copy(const Session& from, Session& to) {
  model_.copy(from.slot, to.slot, from.consumed());
  stand(to, from.position, from.pending);
}

void Sessions::stand(Session& session, int64_t position, int32_t pending) {
  session.position = position;
  session.pending = pending;
  rewinds_.begin(session, false);
}

void Sessions::know(Session& session, std::span<const int32_t> values) {
  session.position += std::ssize(values);
  session.pending = values.back();
  rewinds_.note(session, values);
}

void Sessions::set(const Session& session, Control control, Penalized penalized) {
  control.pending = session.pending;
  control.position = session.position - (session.pending == kNoValue ? 0 : 1);
  model_.set(session.slot, control, false);
  if (penalized.penalties != nullptr) model_.penalize(session.slot, std::move(penalized));
}

Gauge& Sessions::gauge(SessionPhase state) { return by_state_[static_cast<size_t>(state)]; }

std::array<int64_t, kSlotStates> Sessions::slots_by_state() const {
  std::array<int64_t, kSlotStates> slots{};
  std::ranges::transform(by_state_, slots.begin(), &Gauge::value);
  return slots;
}

void Sessions::apply(Session& session, SessionEvent event) {
  hold(session);
  if (event == SessionEvent::kFeed || event == SessionEvent::kSample) session.saved_at.reset();
  session.used = ++uses_;
  gauge(session.state).add(-1);
  session.apply(event);
  gauge(session.state).add(1);
}

void Sessions::hold(Session& session) {
  if (!std::exchange(session.spare, false)) return;
  spare_.remove(session);
  pool_.take_back();
  accounts_.add(session.account, 0, -1);
  gauge(session.state).add(1);
}

void Sessions::lend(Session& session) {
  hold(session);
  if (session.saved_at != session.position || !session.resting()) return;
  session.spare = true;
  spare_.add(session);
  pool_.lend();
  accounts_.add(session.account, 0, 1);
  gauge(session.state).add(-1);
}

void Sessions::end(Session& session) {
  hold(session);
  rewinds_.leave(session);
  gauge(session.state).add(-1);
  session.apply(SessionEvent::kEnd);
  pool_.release(session.slot);
  accounts_.add(session.account, -1, 0);
  session.counted.reset();
}

void Sessions::give_back(Session& session, TimePoint now, const PrefixKey* key, PrefixWorth worth) {
  if (session.key.id.empty()) {
    const bool stays = key != nullptr && prefixes_.make_room(*key, now);
    end(session);
    if (stays) prefixes_.hand_over(*key, now, worth);
    return;
  }
  rewinds_.leave(session);
  if (!session.resting()) apply(session, SessionEvent::kPause);
  session.idle_since = now;
  lend(session);
}

void Sessions::forget(Session& session) {
  end(session);
  if (session.stored) {
    states_.erase(std::string(session.key.id));
    stored_.fetch_sub(1);
  } else {
    table_.erase(SessionKey(session.key));
  }
}

void Sessions::expire(TimePoint now) {
  if (now < next_expiry_) return;
  next_expiry_ = now + kExpiryInterval;
  const TimePoint since = now - options_.idle_timeout;
  table_.erase_rested(since, [this](Session& session) { end(session); });
  prefixes_.expire(since);
}

Result<SessionInfo> Sessions::create(SessionKey key, const Caller& caller, TimePoint now) {
  if (!key.id.empty() && table_.find(key) != nullptr) {
    return session_exists(key.id, fields::kId);
  }
  if (Status s = take_room(1, caller); !s.ok()) return s;
  Session& session = open(std::move(key), caller);
  session.idle_since = now;
  reset(session);
  return describe(session, now);
}

Result<SessionInfo> Sessions::get(const SessionKey& key, TimePoint now) {
  const Session* session = table_.find(key);
  if (session == nullptr) return no_session(key.id, fields::kId);
  return describe(*session, now);
}

SessionPage Sessions::page(const std::string& owner, const std::string& after, int count,
                           TimePoint now) const {
  return table_.page(owner, after, count, now);
}

}  // namespace runnel
