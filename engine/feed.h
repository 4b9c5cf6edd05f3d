// Values that a session consumes in order, in one or more steps: the values of a message of a Score
// call, or the values that a rewind feeds again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/session.h"
#include "engine/turns.h"

namespace runnel {

struct Feed {
  Session* session = nullptr;           // null before the first value and after the call's end
  std::shared_ptr<AccountTurns> turns;  // null when `session` is
  std::vector<int32_t> values;
  size_t fed = 0;       // how many of `values` the session has been given
  TimePoint came{};     // when the values came
  uint64_t served = 0;  // Candidate::served

  std::span<const int32_t> unfed() const { return std::span(values).subspan(fed); }
};

// The last part of a rewind: the session consumes again the values between a snapshot and the
// target position.
struct Refeed {
  Feed feed;
  // Called once: with OK when the session is at rest, or with the reason why the session has ended.
  std::function<void(const Status&)> done;

  bool over() const { return feed.session == nullptr; }
};

}  // namespace runnel
