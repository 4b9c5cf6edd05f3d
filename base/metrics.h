// Counters, gauges and histograms, and their text for Prometheus. They are members of the class
// that counts; there is no registry. Any thread may count and read at any time. Counting and
// reading take no lock and allocate nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace runnel {

// Only ever grows.
class Counter {
 public:
  void add(int64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Goes up and down.
class Gauge {
 public:
  void add(int64_t amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// The buckets of a histogram: each counts values above the previous bound and up to its own.
struct Buckets {
  static constexpr size_t kCount = 18;
  std::array<int64_t, kCount> bounds;  // ascending; one more bucket takes values above the last
  int64_t per_unit;  // units of the bounds per unit of the metric, such as 1e9 ns per s
};

// In nanoseconds, written as seconds: 0.1 ms to 60 s.
inline constexpr Buckets kTimeBuckets = {
    {100'000, 250'000, 500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 25'000'000, 50'000'000,
     100'000'000, 250'000'000, 500'000'000, 1'000'000'000, 2'500'000'000, 5'000'000'000,
     10'000'000'000, 30'000'000'000, 60'000'000'000},
    1'000'000'000};

// For counts, in powers of two: 1 to 131072.
inline constexpr Buckets kCountBuckets = {
    {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072},
    1};

// Counts observations by range of size.
class Histogram {
 public:
  // `buckets` must outlive the object.
  explicit Histogram(const Buckets& buckets) : buckets_(buckets) {}

  // Counts `times` observations of `size`, in units of the buckets.
  void observe(int64_t size, int64_t times = 1);
  void observe(Duration time, int64_t times = 1) {
    observe(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count(), times);
  }
  // Adds the counts of `other`, which has the same buckets.
  void add(const Histogram& other);

  const Buckets& buckets() const { return buckets_; }
  // Observations in bucket `index` alone; index kCount: above the last bound.
  int64_t count(size_t index) const { return counts_[index].value(); }
  // All observations.
  int64_t count() const;
  // The sum of all observed sizes, in units of the buckets.
  int64_t sum() const { return sum_.value(); }

 private:
  const Buckets& buckets_;
  std::array<Counter, Buckets::kCount + 1> counts_;
  Counter sum_;
};

// The text that Prometheus scrapes (exposition format 0.0.4).
class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // Begins a family of metrics. `type` is "counter", "gauge" or "histogram". The samples that
  // follow belong to the family. Each name may be used once. A family may have no samples.
  void family(std::string_view name, std::string_view type, std::string_view help);
  // Add a sample of a counter or a gauge, or all samples of a histogram. The values of labels are
  // escaped. The names of labels are not, so they must need no escaping.
  void sample(Labels labels, int64_t value);
  void sample(Labels labels, double value);
  void sample(Labels labels, const Histogram& histogram);

  const std::string& text() const { return text_; }

 private:
  void line(std::string_view suffix, Labels labels, std::string_view bound, std::string_view value);

  std::string name_;
  std::string text_;
};

}  // namespace runnel
