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

// The time of a step is measured again after the number of rows has more than doubled or halved.
bool FeedPace::knows_decoding(int64_t rows) const {
  return decoded_ > 0 && rows <= 2 * decoded_ && decoded_ <= 2 * rows;
}

int64_t FeedPace::most(int64_t decoding) const {
  if (slowdown_ == 0 || decoding == 0) return kNoBound;
  if (!knows_decoding(decoding) || fed_steps_ >= kStepsOfAMeasure) return 0;
  if (!knows_value_) return std::max(kFirst, chunk_);
  if (value_ <= Duration(0)) return kNoBound;
  // If a step alone takes long, prompts may double its time.
  const Duration rest = std::max(kMost - decoding_, decoding_);
  const Duration allowed = std::min((slowdown_ - 1) * decoding_, rest);
  return std::max({int64_t{allowed / value_}, chunk_, int64_t{1}});
}

void FeedPace::note(int64_t decoding, int64_t fed, Duration took) {
  if (slowdown_ == 0 || decoding == 0) return;
  if (fed == 0) {
    decoding_ = knows_decoding(decoding) ? smoothed(decoding_, took, kSeldom) : took;
    decoded_ = decoding;
    fed_steps_ = 0;
    return;
  }
  const Duration each = std::max(took - decoding_, Duration(0)) / fed;
  value_ = knows_value_ ? smoothed(value_, each, kOften) : each;
  knows_value_ = true;
  ++fed_steps_;
}

}  // namespace runnel
