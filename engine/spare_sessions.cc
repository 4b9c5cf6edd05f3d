#include "engine/spare_sessions.h"

namespace runnel {

void SpareSessions::add(Session& session) {
  const int end = static_cast<int>(links_.size()) - 1;
  links_[session.slot] = {&session, links_[end].before, end};
  links_[links_[end].before].after = session.slot;
  links_[end].before = session.slot;
}

void SpareSessions::remove(const Session& session) {
  Link& link = links_[session.slot];
  links_[link.before].after = link.after;
  links_[link.after].before = link.before;
  link.session = nullptr;
}

Session* SpareSessions::oldest(const std::optional<std::string>& account) const {
  for (int at = links_.back().after;; at = links_[at].after) {
    Session* const session = links_[at].session;  // null at the end of the list
    if (session == nullptr || !account || session->account == *account) return session;
  }
}

}  // namespace runnel
