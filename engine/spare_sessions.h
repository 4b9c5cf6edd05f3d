// The sessions at rest whose states are saved outside of the engine, in the order in which their
// slots are to be given up: the one that has rested longest first.
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

  // Adds a session as the last one. It has a slot, and is not in the list.
  void add(Session& session);
  // Takes out a session that is in the list.
  void remove(const Session& session);
  // The first session, or the first of an account. Null where there is none.
  Session* oldest(const std::optional<std::string>& account = {}) const;

 private:
  struct Link {
    Session* session = nullptr;  // null: it is in no list
    int before = 0, after = 0;   // places in links_
  };

  std::vector<Link> links_;  // by slot, and the two ends of the list as the last one
};

}  // namespace runnel
