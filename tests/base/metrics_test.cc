#include "base/metrics.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace runnel {
namespace {

TEST(Metrics, CountsFromManyThreads) {
  Counter counter;
  Gauge gauge;
  Histogram histogram(kCountBuckets);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) {
        counter.add();
        gauge.add(n % 2 == 0 ? 3 : -3);
        histogram.observe(int64_t{n % 4});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 4000);
  EXPECT_EQ(gauge.value(), 0);
  EXPECT_EQ(histogram.count(), 4000);
  EXPECT_EQ(histogram.sum(), 4 * 250 * (0 + 1 + 2 + 3));
}

TEST(Metrics, ABucketIncludesItsUpperBound) {
  Histogram histogram(kTimeBuckets);
  histogram.observe(std::chrono::microseconds(100));
  histogram.observe(std::chrono::nanoseconds(100'001));
  histogram.observe(std::chrono::seconds(60), 2);
  histogram.observe(std::chrono::seconds(61));
  EXPECT_EQ(histogram.count(0), 1);
  EXPECT_EQ(histogram.count(1), 1);
  EXPECT_EQ(histogram.count(Buckets::kCount - 1), 2);
  EXPECT_EQ(histogram.count(Buckets::kCount), 1);
  EXPECT_EQ(histogram.count(), 5);
}

TEST(Metrics, BucketsAscend) {
  for (const Buckets& buckets : {kTimeBuckets, kCountBuckets}) {
    for (size_t i = 1; i < Buckets::kCount; ++i) {
      EXPECT_LT(buckets.bounds[i - 1], buckets.bounds[i]);
    }
  }
}

TEST(Metrics, AHistogramAddsAnother) {
  Histogram one(kCountBuckets);
  Histogram other(kCountBuckets);
  one.observe(int64_t{3});
  other.observe(int64_t{3}, 2);
  other.observe(int64_t{1 << 20});
  one.add(other);
  EXPECT_EQ(one.count(2), 3);
  EXPECT_EQ(one.count(Buckets::kCount), 1);
  EXPECT_EQ(one.sum(), 9 + (1 << 20));
}

TEST(MetricsText, WritesHelpAndTypeOncePerFamily) {
  MetricsText text;
  text.family("calls_total", "counter", "Calls that\nhave \"ended\" \\ failed.");
  text.sample({}, int64_t{3});
  text.sample({{"model", "a"}, {"code", "OK"}}, int64_t{-4});
  text.family("load", "gauge", "Load.");
  text.sample({}, 0.25);
  EXPECT_EQ(text.text(),
            "# HELP calls_total Calls that\\nhave \"ended\" \\\\ failed.\n"
            "# TYPE calls_total counter\n"
            "calls_total 3\n"
            "calls_total{model=\"a\",code=\"OK\"} -4\n"
            "# HELP load Load.\n"
            "# TYPE load gauge\n"
            "load 0.25\n");
}

TEST(MetricsText, EscapesTheValuesOfLabels) {
  MetricsText text;
  text.family("a", "gauge", "A.");
  text.sample({{"model", "x\"} 1\n# \\"}}, int64_t{1});
  EXPECT_TRUE(text.text().ends_with("a{model=\"x\\\"} 1\\n# \\\\\"} 1\n"));
}

TEST(MetricsText, BucketsAreCumulative) {
  Histogram histogram(kTimeBuckets);
  histogram.observe(std::chrono::microseconds(50));
  histogram.observe(std::chrono::milliseconds(1), 3);
  histogram.observe(std::chrono::seconds(100));
  MetricsText text;
  text.family("wait_seconds", "histogram", "Waits.");
  text.sample({{"model", "m"}}, histogram);
  EXPECT_NE(text.text().find("wait_seconds_bucket{model=\"m\",le=\"0.0001\"} 1\n"
                             "wait_seconds_bucket{model=\"m\",le=\"0.00025\"} 1\n"
                             "wait_seconds_bucket{model=\"m\",le=\"0.0005\"} 1\n"
                             "wait_seconds_bucket{model=\"m\",le=\"0.001\"} 4\n"),
            std::string::npos);
  EXPECT_TRUE(
      text.text().ends_with("wait_seconds_bucket{model=\"m\",le=\"60\"} 4\n"
                            "wait_seconds_bucket{model=\"m\",le=\"+Inf\"} 5\n"
                            "wait_seconds_sum{model=\"m\"} 100.00305\n"
                            "wait_seconds_count{model=\"m\"} 5\n"));
}

}  // namespace
}  // namespace runnel
