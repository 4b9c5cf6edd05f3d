#include "engine/feed_pace.h"

#include <algorithm>

namespace runnel {
namespace {

// The divisors for new measurements: a weight of 1/2 for the figure that is seldom measured, 1/4
// for the other.
constexpr int kSeldom = 2, kOften = 4;

Duration smoothed(Duration before, Duration now, int part) {
  return before + (now - before) / part;
}

}  // namespace

int64_t FeedPace::most(int64_t decoding) const {
  if (slowdown_ == 0 || decoding == 0) return kNoBound;
  const auto& [time, measured] = decoding_[digits_of(decoding)];
  if (measured < 0 || fed_steps_ - measured >= kStepsOfAMeasure) return 0;
  if (!knows_value_) return std::max(kFirst, chunk_);
  if (value_ <= Duration(0)) return kNoBound;
  // If a step without prompts takes long, prompts may still double its time.
  const Duration rest = std::max(kMost - time, time);
  const Duration allowed = std::min((slowdown_ - 1) * time, rest);
  return std::max({int64_t{allowed / value_}, chunk_, int64_t{1}});
}

void FeedPace::note(int64_t decoding, int64_t fed, Duration took) {
  if (slowdown_ == 0 || decoding == 0) return;
  const size_t digits = digits_of(decoding);
  auto& [time, measured] = decoding_[digits];
  if (fed == 0) {
    // If another order of magnitude was measured last, the earlier time may be old.
    time = measured >= 0 && digits == last_ ? smoothed(time, took, kSeldom) : took;
    measured = fed_steps_;
    last_ = digits;
    return;
  }
  const Duration each = std::max(took - time, Duration(0)) / fed;
  value_ = knows_value_ ? smoothed(value_, each, kOften) : each;
  knows_value_ = true;
  ++fed_steps_;
}

}  // namespace runnel
