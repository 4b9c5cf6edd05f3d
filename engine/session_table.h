// The named sessions of one engine, by (owner, id).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "engine/session.h"

namespace runnel {

class SessionTable {
 public:
  // Null if there is no such session.
  Session* find(const SessionKey& key);

  // Adds a session under its key, which must be free. The pointer stays valid until erase().
  Session* insert(Session session);

  // Removes a session. The caller must release its slot.
  void erase(const SessionKey& key);

  // The sessions of `owner` whose ids are greater than `after`, in the order of their ids; at most
  // `count`.
  SessionPage page(const std::string& owner, const std::string& after, int count,
                   TimePoint now) const;

  // Removes the sessions that have been at rest since before `since`, in one pass. Calls `end`,
  // which must release the slot, before it removes a session.
  void erase_rested(TimePoint since, const std::function<void(Session&)>& end);

 private:
  std::map<SessionKey, Session> sessions_;
};

// The description of a session for clients.
SessionInfo describe(const Session& session, TimePoint now);

}  // namespace runnel
