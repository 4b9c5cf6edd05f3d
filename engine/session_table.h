// The named sessions of one engine, by (owner, id).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "engine/session.h"

namespace runnel {

class SessionTable {
 public:
  // Null when there is none.
  Session* find(const SessionKey& key);

  // Takes a session under its key, which must be free. The pointer stays valid until erase().
  Session* insert(Session session);

  // Forgets a session; its slot is the caller's to release.
  void erase(const SessionKey& key);

  // Sessions of `owner` with ids after `after`, at most `count`, by id.
  SessionPage page(const std::string& owner, const std::string& after, int count,
                   TimePoint now) const;

  // Forgets the sessions that have rested since before `since`, in one pass; `end` is called with
  // each before, and releases its slot.
  void erase_rested(TimePoint since, const std::function<void(Session&)>& end);

 private:
  std::map<SessionKey, Session> sessions_;
};

// A session as callers see it.
SessionInfo describe(const Session& session, TimePoint now);

}  // namespace runnel
