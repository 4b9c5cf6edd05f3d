#include "server/net/kept_out.h"

#include <algorithm>
#include <cstddef>

namespace runnel {
namespace {

constexpr Duration kFirst = std::chrono::seconds(5);
constexpr Duration kLongest = std::chrono::seconds(80);
constexpr Duration kRemembered = std::chrono::minutes(10);
constexpr size_t kMost = 4096;  // addresses

}  // namespace

void KeptOut::add(const std::string& peer, TimePoint now) {
  forget_old(now);
  Term& term = terms_[peer];
  if (now < term.until) return;
  term.length = term.length == Duration(0) ? kFirst : std::min(2 * term.length, kLongest);
  term.until = now + term.length;
}

bool KeptOut::has(const std::string& peer, TimePoint now) const {
  const auto term = terms_.find(peer);
  return term != terms_.end() && now < term->second.until;
}

// If there are still too many addresses, forgets the one whose term ends first.
void KeptOut::forget_old(TimePoint now) {
  std::erase_if(terms_, [&](const auto& each) { return each.second.until + kRemembered < now; });
  if (terms_.size() < kMost) return;
  terms_.erase(
      std::ranges::min_element(terms_, {}, [](const auto& each) { return each.second.until; }));
}

}  // namespace runnel
