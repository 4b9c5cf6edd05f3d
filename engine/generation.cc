#include "engine/generation.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string_view>

#include "base/check.h"
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

// A stop text may begin and end within a value. It is complete when its last byte is in `bytes`.
bool completes_text(const std::vector<std::string>& stop, std::string_view bytes,
                    std::string& tail) {
  constexpr size_t kMost = kMaxStopTextBytes - 1;  // bytes of a stop text before its last
  if (tail.size() > kMost) tail.erase(0, tail.size() - kMost);
  const size_t before = tail.size();
  tail += bytes;
  return std::any_of(stop.begin(), stop.end(), [&](const std::string& text) {
    const size_t from = before - std::min(before, text.size() - 1);
    return tail.find(text, from) != std::string::npos;
  });
}

}  // namespace

std::optional<GenerationPhase> next_phase(GenerationPhase phase, GenerationEvent event) {
  using P = GenerationPhase;
  using Next = std::optional<GenerationPhase>;
  constexpr Next kNever = std::nullopt;
  // Rows by phase, columns by event: resend, feed, sample, end.
  constexpr std::array<std::array<Next, 4>, 5> kTable = {{
      {P::kResending, P::kPrompting, P::kSampling, P::kEnded},  // admitted
      {kNever, kNever, P::kSampling, P::kEnded},                // resending
      {kNever, kNever, P::kSampling, P::kEnded},                // prompting
      {kNever, kNever, kNever, P::kEnded},                      // sampling
      {kNever, kNever, kNever, kNever},                         // ended
  }};
  return kTable[static_cast<size_t>(phase)][static_cast<size_t>(event)];
}

void Generation::apply(GenerationEvent event) {
  const std::optional<GenerationPhase> next = next_phase(phase, event);
  check(next.has_value(), "the table of a generation has this event in this phase");
  phase = *next;
}

int Generation::live_samples() const {
  return static_cast<int>(
      std::count_if(samples.begin(), samples.end(), [](const Sample& s) { return !s.finished; }));
}

int Generation::ahead() const {
  return std::transform_reduce(samples.begin(), samples.end(), 0, std::plus<>(),
                               [](const Sample& sample) { return sample.ahead; });
}

void reserve_tails(const GenerateRequest& request, Sample& sample) {
  if (!request.stop.empty()) sample.tail.reserve(kMaxStopLength);
  if (request.stop_text.empty()) return;
  sample.text_tail.reserve(static_cast<size_t>(kMaxStopTextBytes + request.tokenizer->longest()));
}

bool watch_for_stop(const GenerateRequest& request, int32_t value, int64_t position,
                    Sample& sample) {
  const bool stops = !request.stop.empty() && completes_sequence(request.stop, value, sample.tail);
  if (request.stop_text.empty()) return stops;
  const std::string_view bytes = request.tokenizer->bytes(value, position == 0);
  return completes_text(request.stop_text, bytes, sample.text_tail) || stops;
}

void restore_tails(Generation& generation) {
  const GenerateRequest& request = generation.request;
  if (!request.may_stop()) return;
  const std::vector<StreamValue>& values = generation.record->values;
  auto from = values.end();
  // A value may have no bytes, so the number of values that a stop text can reach depends on the
  // text.
  for (int64_t count = 0, bytes = 0; from != values.begin(); ++count) {
    if (count >= kMaxStopLength && (!request.tokenizer || bytes >= kMaxStopTextBytes)) break;
    --from;
    if (request.tokenizer) bytes += std::ssize(request.tokenizer->bytes(from->value));
  }
  for (; from != values.end(); ++from) {
    watch_for_stop(request, from->value, from->position, generation.samples[0]);
  }
}

bool resend(Generation& generation, TimePoint now) {
  const CallRecord& record = *generation.record;
  auto top = record.top.begin() + generation.top_resent;
  int room = generation.stream->room();
  for (; room > 0 && generation.resent < record.values.size(); --room) {
    const StreamValue& value = record.values[generation.resent++];
    const Emitted emitted = {.value = value.value,
                             .position = value.position,
                             .log_prob = value.log_prob,
                             .top = {top, top + value.top_count}};
    top += value.top_count;
    generation.stream->push(0, emitted, now);
  }
  generation.top_resent = top - record.top.begin();
  return generation.resent == record.values.size();
}

std::optional<FinishReason> take_value(Generation& generation, int index, const Emitted& emitted,
                                       const Spec& spec, TimePoint now) {
  Sample& sample = generation.samples[index];
  Session& session = *sample.session;
  session.position = emitted.position + 1;
  session.pending = emitted.value;
  --sample.remaining;
  ++sample.sampled;
  generation.stream->push(index, emitted, now);
  if (generation.record) generation.record->add(emitted);
  if (watch_for_stop(generation.request, emitted.value, emitted.position, sample)) {
    return FinishReason::kStop;
  }
  // The first value of a sequence is not sampled. It may be a value that also ends sequences.
  if (emitted.position > 0 && generation.request.ends_at(emitted.value, spec.eos)) {
    return FinishReason::kEos;
  }
  if (session.position == spec.max_length()) return FinishReason::kEnd;
  if (sample.remaining == 0) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace runnel
