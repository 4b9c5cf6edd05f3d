#include "engine/call_record.h"

#include <algorithm>
#include <new>

namespace runnel {

void CallRecord::limit(int64_t bytes, int top_log_probs) {
  most = bytes / static_cast<int64_t>(sizeof(StreamValue) + top_log_probs * sizeof(TopLogProb));
}

void CallRecord::reserve(int64_t more, int top_log_probs) {
  const int64_t count = std::min(std::ssize(values) + more, most);
  try {
    values.reserve(static_cast<size_t>(count));
    top.reserve(static_cast<size_t>(count * top_log_probs));
  } catch (const std::bad_alloc&) {
    most = std::ssize(values);
  }
}

void CallRecord::shrink() {
  values.shrink_to_fit();
  top.shrink_to_fit();
}

void CallRecord::add(const Emitted& emitted) {
  if (std::ssize(values) == most) {
    whole = false;
    return;
  }
  values.push_back({.sample = 0,
                    .value = emitted.value,
                    .position = emitted.position,
                    .log_prob = emitted.log_prob,
                    .top_count = static_cast<int32_t>(emitted.top.size())});
  top.insert(top.end(), emitted.top.begin(), emitted.top.end());
}

}  // namespace runnel
