#include "engine/call_record.h"

#include <algorithm>

namespace runnel {

void CallRecord::reserve(int64_t more, int top_log_probs) {
  const int64_t most = std::min(std::ssize(values) + more, kMaxRecordedValues);
  values.reserve(static_cast<size_t>(most));
  top.reserve(static_cast<size_t>(most * top_log_probs));
}

void CallRecord::shrink() {
  values.shrink_to_fit();
  top.shrink_to_fit();
}

void CallRecord::add(const Emitted& emitted) {
  if (static_cast<int64_t>(values.size()) == kMaxRecordedValues) {
    whole = false;
    return;
  }
  values.push_back({.sample = 0,
                    .value = emitted.value,
                    .position = emitted.position,
                    .log_prob = emitted.log_prob,
                    .top_count = emitted.top_count});
  top.insert(top.end(), emitted.top, emitted.top + emitted.top_count);
}

}  // namespace runnel
