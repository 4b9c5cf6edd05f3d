#include "bench/duration_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace runnel {
namespace {

TEST(DurationHistogram, AnEmptyHistogramHasOnlyZeros) {
  const DurationHistogram none;
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(none.quantile(0.5), 0);
  EXPECT_EQ(none.max(), 0);
}

TEST(DurationHistogram, QuantilesAreAtMostOnePercentTooLong) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-5, 2);
  DurationHistogram histogram;
  std::vector<double> all;
  for (int i = 0; i < 5000; ++i) {
    all.push_back(std::pow(10, exponent(random)));
    histogram.add(all.back());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(histogram.count(), 5000);
  EXPECT_EQ(histogram.max(), all.back());
  for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 0.9999, 1.0}) {
    const double exact = all[static_cast<size_t>(std::ceil(q * 5000)) - 1];
    EXPECT_GE(histogram.quantile(q), exact * (1 - 1e-9)) << q;
    EXPECT_LE(histogram.quantile(q), exact * 1.0101) << q;
  }
}

TEST(DurationHistogram, TakesDurationsOutOfRange) {
  DurationHistogram histogram;
  histogram.add(0);
  histogram.add(-1);
  histogram.add(1e9);
  EXPECT_EQ(histogram.count(), 3);
  EXPECT_LE(histogram.quantile(0.5), 1.1e-6);
  EXPECT_EQ(histogram.max(), 1e9);
  EXPECT_GT(histogram.quantile(1), 100);
}

}  // namespace
}  // namespace runnel
