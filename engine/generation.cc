#include "engine/generation.h"

#include <algorithm>

#include "base/limits.h"

namespace runnel {

int Generation::live_samples() const {
  return static_cast<int>(
      std::count_if(samples.begin(), samples.end(), [](const Sample& s) { return !s.finished; }));
}

bool ends_with_stop(const std::vector<std::vector<int32_t>>& stop,
                    const std::vector<int32_t>& tail) {
  return std::any_of(stop.begin(), stop.end(), [&](const std::vector<int32_t>& sequence) {
    return sequence.size() <= tail.size() &&
           std::equal(sequence.rbegin(), sequence.rend(), tail.rbegin());
  });
}

void replay(Generation& generation, TimePoint now) {
  const CallRecord& record = *generation.record;
  auto top = record.top.begin() + generation.top_replayed;
  for (int room = generation.stream->room(); room > 0 && generation.replaying(); --room) {
    const StreamValue& value = record.values[generation.replayed++];
    Emitted emitted;
    emitted.value = value.value;
    emitted.position = value.position;
    emitted.log_prob = value.log_prob;
    emitted.top_count = value.top_count;
    std::copy_n(top, value.top_count, emitted.top);
    top += value.top_count;
    generation.stream->push(0, emitted, now);
  }
  generation.top_replayed = top - record.top.begin();
}

std::optional<FinishReason> take_value(Generation& generation, int index, const Emitted& emitted,
                                       int64_t max_length, TimePoint now) {
  Sample& sample = generation.samples[index];
  Session& session = *sample.session;
  session.position = emitted.position + 1;
  session.pending = emitted.value;
  --sample.remaining;
  ++sample.sampled;
  generation.stream->push(index, emitted, now);
  if (generation.record) generation.record->add(emitted);
  if (!generation.request.stop.empty()) {
    if (static_cast<int64_t>(sample.tail.size()) == kMaxStopLength) {
      sample.tail.erase(sample.tail.begin());
    }
    sample.tail.push_back(emitted.value);  // reserved at admission
    if (ends_with_stop(generation.request.stop, sample.tail)) return FinishReason::kStop;
  }
  if (session.position == max_length) return FinishReason::kEnd;
  if (sample.remaining == 0) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace runnel
