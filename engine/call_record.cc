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

bool CallRecord::leads_to(int64_t end, int64_t given, int64_t most_values,
                          int top_log_probs) const {
  const int64_t sampled = std::ssize(values);
  if (sampled > most_values || (finished && finished->position != end)) return false;
  int64_t at = position + given;
  int64_t found = 0;  // top log-probabilities
  for (const StreamValue& value : values) {
    if (value.position != at++ || value.top_count < 0 || value.top_count > top_log_probs) {
      return false;
    }
    found += value.top_count;
  }
  if (found != std::ssize(top)) return false;
  // A call that was cancelled or timed out may not have read all of its prompt.
  return sampled > 0 ? at == end : position <= end && end <= at;
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
