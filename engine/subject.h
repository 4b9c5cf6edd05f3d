// The call that a row of a step belongs to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/feed.h"
#include "engine/generation.h"
#include "engine/score_call.h"
#include "models/model.h"

namespace runnel {

struct Subject {
  Generation* generation = nullptr;  // exactly one of these three is not null
  ScoreCall* score = nullptr;
  Refeed* refeed = nullptr;
  int index = 0;  // the index of a generation's sample; the first sample consumes the prompt

  Sample& sample() const { return generation->samples[index]; }
  Session& session() const { return generation ? *sample().session : *fed().session; }
  AccountTurns& turns() const { return generation ? *generation->turns : *fed().turns; }
  // The values of the prompt or of the feed that the session has not been given yet.
  std::span<const int32_t> unfed() const {
    return generation ? generation->unfed() : fed().unfed();
  }
  // The maximum number of values of unfed() that may be fed in one step.
  int64_t most_inputs() const {
    const int64_t most = std::ssize(unfed());
    return generation ? std::min(most, generation->most_inputs()) : most;
  }
  // Notes that the session has been given the first `count` values of unfed().
  void feed(int count) const { (generation ? generation->fed : fed().fed) += count; }
  // Candidate::served of a row that wants `want`.
  uint64_t& served(Want want) const {
    if (generation == nullptr) return fed().served;
    return want == Want::kNext ? sample().served : generation->served;
  }

 private:
  Feed& fed() const { return score ? score->feed : refeed->feed; }
};

}  // namespace runnel
