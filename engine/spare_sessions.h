// A list of the spare sessions: those at rest whose states are saved outside of the engine. The
// session that has been at rest for longest is the first, and gives up its slot first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/session.h"

namespace runnel {

class SpareSessions {
 public:
  // All memory is allocated here.
  explicit SpareSessions(int slots)
      : links_(static_cast<size_t>(slots) + 1, {nullptr, slots, slots}) {}

  // Adds a session at the end of the list. The session must have a slot and not be in the list.
  void add(Session& session);
  // Removes a session, which must be in the list.
  void remove(const Session& session);
  // The first session of the list, or of an account's sessions in it. Null if there is none.
  Session* oldest(const std::optional<std::string>& account = {}) const;

 private:
  struct Link {
    Session* session = nullptr;  // null: the slot's session is not in the list
    int before = 0, after = 0;   // indices in links_
  };

  std::vector<Link> links_;  // one for each slot, and a last one that marks both ends of the list
};

}  // namespace runnel
