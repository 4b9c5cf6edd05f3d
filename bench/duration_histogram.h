// Many durations in little memory: counts in buckets that grow by one percent each.
#pragma once

#include <array>
#include <cstdint>

namespace runnel {

class DurationHistogram {
 public:
  // From one microsecond to a quarter of an hour; what lies outside is put into the buckets at the
  // ends.
  void add(double seconds);

  int64_t count() const { return count_; }
  double max() const { return max_; }  // exact; 0 where there is none

  // The duration in seconds that a share `q` of all does not exceed, at most one percent too long;
  // 0 where there is none. 0 <= q <= 1.
  double quantile(double q) const;

 private:
  static constexpr int kBuckets = 2080;
  std::array<int64_t, kBuckets> buckets_{};
  int64_t count_ = 0;
  double max_ = 0;
};

}  // namespace runnel
