#include "engine/generation.h"

#include <algorithm>
#include <string_view>

#include "base/limits.h"
#include "models/text/tokenizer.h"

namespace runnel {
namespace {

bool completes_sequence(const std::vector<std::vector<int32_t>>& stop, int32_t value,
                        std::vector<int32_t>& tail) {
  if (static_cast<int64_t>(tail.size()) == kMaxStopLength) tail.erase(tail.begin());
  tail.push_back(value);
  return std::any_of(stop.begin(), stop.end(), [&](const std::vector<int32_t>& sequence) {
    return sequence.size() <= tail.size() &&
           std::equal(sequence.rbegin(), sequence.rend(), tail.rbegin());
  });
}

// A stop text may begin and end inside of a value: it counts when its last byte is one of `bytes`.
bool completes_text(const std::vector<std::string>& stop, std::string_view bytes,
                    std::string& tail) {
  constexpr size_t kMost = kMaxStopTextBytes - 1;  // before `bytes`, what a stop text can reach
  if (tail.size() > kMost) tail.erase(0, tail.size() - kMost);
  const size_t before = tail.size();
  tail += bytes;
  return std::any_of(stop.begin(), stop.end(), [&](const std::string& text) {
    const size_t from = before - std::min(before, text.size() - 1);
    return tail.find(text, from) != std::string::npos;
  });
}

}  // namespace

int Generation::live_samples() const {
  return static_cast<int>(
      std::count_if(samples.begin(), samples.end(), [](const Sample& s) { return !s.finished; }));
}

void reserve_tails(const GenerateRequest& request, Sample& sample) {
  if (!request.stop.empty()) sample.tail.reserve(kMaxStopLength);
  if (request.stop_text.empty()) return;
  sample.text_tail.reserve(static_cast<size_t>(kMaxStopTextBytes + request.tokenizer->longest()));
}

bool watch_for_stop(const GenerateRequest& request, int32_t value, Sample& sample) {
  const bool stops = !request.stop.empty() && completes_sequence(request.stop, value, sample.tail);
  const bool stops_text =
      !request.stop_text.empty() &&
      completes_text(request.stop_text, request.tokenizer->bytes(value), sample.text_tail);
  return stops || stops_text;
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
  if (watch_for_stop(generation.request, emitted.value, sample)) return FinishReason::kStop;
  if (session.position == max_length) return FinishReason::kEnd;
  if (sample.remaining == 0) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace runnel
