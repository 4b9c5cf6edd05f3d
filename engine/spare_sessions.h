// A linked list of the spare sessions. A session is spare while no call runs on it and its state is
// saved outside of the engine. The first session of the list has been spare for the longest time,
// and ends first when a call needs a slot.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/session.h"

namespace runnel {

class SpareSessions {
 public:
  // Allocates the memory for all later calls.
  explicit SpareSessions(int slots)
      : links_(static_cast<size_t>(slots) + 1, {nullptr, slots, slots}) {}

  // Appends a session. It must have a slot, and must not be in the list.
  void add(Session& session);
  // Removes a session, which must be in the list.
  void remove(const Session& session);
  // The first session of the list. With `account`, the first session of this account. Null if there
  // is none.
  Session* oldest(const std::optional<std::string>& account = {}) const;

 private:
  struct Link {
    Session* session = nullptr;  // null: the slot's session is not in the list
    int before = 0, after = 0;   // indices in links_
  };

  std::vector<Link> links_;  // one for each slot, then the sentinel of the circular list
};

}  // namespace runnel
