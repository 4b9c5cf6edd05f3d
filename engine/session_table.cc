#include "engine/session_table.h"

#include <utility>

#include "base/check.h"

namespace runnel {

Session* SessionTable::find(const SessionKey& key) {
  const auto it = sessions_.find(key);
  return it == sessions_.end() ? nullptr : &it->second;
}

Session* SessionTable::insert(Session session) {
  SessionKey key = session.key;
  const auto [it, inserted] = sessions_.emplace(std::move(key), std::move(session));
  check(inserted, "a session's name is free");
  return &it->second;
}

void SessionTable::erase(const SessionKey& key) {
  check(sessions_.erase(key) == 1, "the session is in the table");
}

SessionPage SessionTable::page(const std::string& owner, const std::string& after, int count,
                               TimePoint now) const {
  SessionPage page;
  for (auto it = sessions_.upper_bound({owner, after});
       it != sessions_.end() && it->first.owner == owner; ++it) {
    if (static_cast<int>(page.sessions.size()) == count) {
      page.next = page.sessions.back().key.id;
      break;
    }
    page.sessions.push_back(describe(it->second, now));
  }
  return page;
}

void SessionTable::erase_rested(TimePoint since, const std::function<void(Session&)>& end) {
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    Session& session = it->second;
    const bool expired = session.resting() && session.idle_since < since;
    if (expired) end(session);
    it = expired ? sessions_.erase(it) : std::next(it);
  }
}

SessionInfo describe(const Session& session, TimePoint now) {
  return {.key = session.key,
          .state = session.state,
          .position = session.position,
          .idle = session.resting() ? now - session.idle_since : Duration(0)};
}

}  // namespace runnel
