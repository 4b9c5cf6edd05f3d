// The counters of one engine's scheduler. Any thread may read them.
#pragma once

#include "base/metrics.h"

namespace runnel {

struct EngineMetrics {
  Histogram queue_time{kTimeBuckets};  // of admitted calls: from their arrival to their slots
  Histogram value_gap{kTimeBuckets};   // between two consecutive values of a sample
  Histogram step_time{kTimeBuckets};   // of a batch on the device
  Histogram step_rows{kCountBuckets};
  Histogram step_values{kCountBuckets};  // values consumed in a step
  Counter values_sampled;
  Counter values_consumed;  // of prompts and of Score calls
  Counter prefix_hits;      // prompts of new sequences that began at a kept state
  Counter prefix_misses;    // other prompts of new sequences, while the prefix cache is on
  Counter prefix_values;    // prompt values that were not read because a state after them was kept

  // Adds the counts of `other`.
  void add(const EngineMetrics& other) {
    queue_time.add(other.queue_time);
    value_gap.add(other.value_gap);
    step_time.add(other.step_time);
    step_rows.add(other.step_rows);
    step_values.add(other.step_values);
    values_sampled.add(other.values_sampled.value());
    values_consumed.add(other.values_consumed.value());
    prefix_hits.add(other.prefix_hits.value());
    prefix_misses.add(other.prefix_misses.value());
    prefix_values.add(other.prefix_values.value());
  }
};

}  // namespace runnel
