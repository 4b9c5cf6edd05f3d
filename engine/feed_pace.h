// Limits the prompt values in a step that also has decoding rows, so that these rows do not become
// too slow. The time of a step with prompts has two limits: `slowdown` times the time of a step
// without prompts; and about 40 ms, or twice the time of a step without prompts if that is longer.
// The maximum number of values is computed from measured times of earlier steps. A step without
// decoding rows has no limit.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace runnel {

class FeedPace {
 public:
  static constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();

  // `slowdown` 0: no limit. The model reads prompts in chunks of `chunk` values.
  FeedPace(int64_t slowdown, int chunk) : slowdown_(slowdown), chunk_(chunk) {}

  // The most prompt values for a step with `decoding` rows: kNoBound, or at least a chunk. 0 if
  // this step shall measure the time without prompts.
  int64_t most(int64_t decoding) const;

  // Notes the time of a step with `decoding` rows and `fed` prompt values.
  void note(int64_t decoding, int64_t fed, Duration took);

 private:
  // A step without prompts is measured again after this number of steps with prompts.
  static constexpr int64_t kStepsOfAMeasure = 64;
  static constexpr int64_t kFirst = 8;  // prompt values while the time of one is unknown
  static constexpr Duration kMost = std::chrono::milliseconds(40);

  // The time of a step without prompts.
  struct Decoding {
    Duration time{};
    int64_t measured = -1;  // fed_steps_ at the last measurement; -1: there was none
  };

  // The index of decoding_ for a number of rows: the number of its binary digits.
  static size_t digits_of(int64_t rows) {
    return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows)));
  }

  int64_t slowdown_;
  int64_t chunk_;
  // Each order of magnitude has its own time. So prompts also advance if the number of rows changes
  // in each step.
  std::array<Decoding, 65> decoding_{};
  size_t last_ = 0;        // the index of the last measurement
  int64_t fed_steps_ = 0;  // steps with prompts so far
  bool knows_value_ = false;
  Duration value_{};  // the time that each prompt value adds
};

}  // namespace runnel
