#include "engine/call_record.h"

namespace runnel {

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
