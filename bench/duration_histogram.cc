#include "bench/duration_histogram.h"

#include <algorithm>
#include <cmath>

namespace runnel {
namespace {

constexpr double kShortest = 1e-6;
constexpr double kGrowth = 1.01;

}  // namespace

void DurationHistogram::add(double seconds) {
  const double steps = std::log(std::max(seconds, kShortest) / kShortest) / std::log(kGrowth);
  ++buckets_[std::min(static_cast<int>(steps), kBuckets - 1)];
  ++count_;
  max_ = std::max(max_, seconds);
}

double DurationHistogram::quantile(double q) const {
  const auto rank =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(q * static_cast<double>(count_))));
  int64_t below = 0;
  for (int i = 0; i < kBuckets; ++i) {
    below += buckets_[i];
    if (below >= rank) return std::min(max_, kShortest * std::pow(kGrowth, i + 1));
  }
  return max_;
}

}  // namespace runnel
