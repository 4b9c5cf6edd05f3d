// Who makes a call, and what they may use. The door that a call comes through makes its Caller
// once, and the call carries it down to sessions, slots and rows.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace runnel {

// What one caller may use at a time. Without a number: whatever there is.
struct CallerLimits {
  std::optional<int64_t> calls;              // streams
  std::optional<int64_t> sessions;           // states, named or of a running call
  std::optional<int64_t> values_per_second;  // given and sampled
};

struct Caller {
  std::string name;                             // owns sessions; empty: the anonymous caller
  std::optional<std::set<std::string>> models;  // none: every model
  CallerLimits limits;

  bool may_use(const std::string& model) const { return !models || models->contains(model); }
};

}  // namespace runnel
