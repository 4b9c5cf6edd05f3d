// How many values of prompts a step may consume beside rows that decode: few enough that the step
// takes at most a number of times as long as without them, as earlier steps show. Prompts alone
// have no bound.
#pragma once

#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace runnel {

class FeedPace {
 public:
  static constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();

  // `slowdown`: how many times as long; 0: no bound. A model takes prompts in chunks of `chunk`.
  FeedPace(int64_t slowdown, int chunk) : slowdown_(slowdown), chunk_(chunk) {}

  // The most values of prompts that a step with `decoding` rows may consume: kNoBound, or at
  // least a chunk, or 0, so that this step shows how long one takes without.
  int64_t most(int64_t decoding) const;

  // A step with `decoding` rows and `fed` values of prompts took this time.
  void note(int64_t decoding, int64_t fed, Duration took);

 private:
  // A step without prompts is measured again after this number of steps with prompts.
  static constexpr int kStepsOfAMeasure = 64;
  static constexpr int64_t kFirst = 8;  // values, while the time of one is not known
  static constexpr Duration kMost = std::chrono::milliseconds(40);

  bool knows_decoding(int64_t rows) const;

  int64_t slowdown_;
  int64_t chunk_;
  int64_t decoded_ = 0;  // rows of the last step without prompts; 0: there was none
  int fed_steps_ = 0;    // since then
  Duration decoding_{};  // of a step without prompts
  bool knows_value_ = false;
  Duration value_{};  // that each value of a prompt adds
};

}  // namespace runnel
