// Values that a session consumes in order, over as many steps as that takes: those of a message of
// a Score call, or those that a rewind feeds again.
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
  Session* session = nullptr;           // null before the first value, and once the call is over
  std::shared_ptr<AccountTurns> turns;  // likewise
  std::vector<int32_t> values;
  size_t fed = 0;       // of `values`
  TimePoint came{};     // when the values came
  uint64_t served = 0;  // Candidate::served

  std::span<const int32_t> unfed() const { return std::span(values).subspan(fed); }
};

// The end of a rewind: the session consumes again the values between a snapshot and the position
// that it goes back to.
struct Refeed {
  Feed feed;
  // Told once: OK, and the session rests; or why the session has ended.
  std::function<void(const Status&)> done;

  bool over() const { return feed.session == nullptr; }
};

}  // namespace runnel
