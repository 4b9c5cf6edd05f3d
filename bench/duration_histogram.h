// A histogram of durations in constant memory: each bucket is one percent wider than the one
// before.
#pragma once

#include <array>
#include <cstdint>

namespace runnel {

class DurationHistogram {
 public:
  // The buckets cover one microsecond to a quarter of an hour. Other durations count in the first
  // or the last bucket.
  void add(double seconds);

  int64_t count() const { return count_; }
  double max() const { return max_; }  // exact; 0 if there are no durations

  // The quantile `q` in seconds, at most one percent too long; 0 if there are no durations. 0 <= q
  // <= 1.
  double quantile(double q) const;

 private:
  static constexpr int kBuckets = 2080;
  std::array<int64_t, kBuckets> buckets_{};
  int64_t count_ = 0;
  double max_ = 0;
};

}  // namespace runnel
