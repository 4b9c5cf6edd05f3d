// One running Generate call: its phase, and the progress of each of its samples. Independent of the
// scheduler, so that it can be tested alone.
//
//              kResend     kFeed       kSample    kEnd
//   admitted   resending   prompting   sampling   ended
//   resending  -           -           sampling   ended
//   prompting  -           -           sampling   ended
//   sampling   -           -           -          ended
//   ended      -           -           -          -
//
// - resending: the client of a retry gets the values that the earlier try has sampled.
// - prompting: the session of the first sample consumes the prompt.
// - sampling: each sample has a copy of the state after the prompt, decodes, and finishes alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/prefix_cache.h"
#include "engine/session.h"
#include "engine/token_stream.h"
#include "engine/turns.h"
#include "models/spec.h"

namespace runnel {

enum class GenerationPhase { kAdmitted, kResending, kPrompting, kSampling, kEnded };

enum class GenerationEvent {
  kResend,  // an earlier try has sampled values, which are sent first
  kFeed,    // there are prompt values to consume
  kSample,  // the prompt is consumed
  kEnd,     // every sample has finished, or the call ends with a status
};

// The next phase by the table above. None if the event cannot happen in this phase.
std::optional<GenerationPhase> next_phase(GenerationPhase phase, GenerationEvent event);

struct Sample {
  Session* session = nullptr;  // null once the sample has finished
  int64_t remaining = 0;       // values still to sample
  int64_t sampled = 0;         // values sampled
  int ahead = 0;               // steps in launches that are not collected yet
  std::vector<int32_t> tail;   // the last values that a stop sequence may still match
  std::string text_tail;       // the last bytes that a stop text may still match
  bool finished = false;
  uint64_t served = 0;                               // Candidate::served of its decoding row
  std::optional<TimePoint> first_value, last_value;  // when this call sampled these values
};

struct Generation {
  GenerateRequest request;
  RequestDigest digest{};  // of the request, if it has a request_id
  std::shared_ptr<TokenStream> stream;
  GenerationPhase phase = GenerationPhase::kAdmitted;
  std::vector<Sample> samples;
  uint64_t seed = 0;
  size_t fed = 0;                       // prompt values given to the session of the first sample
  bool begins = false;                  // the first value to emit is the model's first value
  int64_t cached = 0;                   // prompt values that were not read: a kept state has them
  std::optional<PrefixKey> prefix;      // the values that the first sample has consumed; none: no
                                        // state is kept
  int64_t keep_at = 0;                  // the length of `prefix` to keep the state at; 0: none
  int64_t least_answer = 0;             // keep the state after the answer if `prefix` is at least
                                        // this long; 0: never
  std::shared_ptr<CallRecord> record;   // null without a request_id or without a session
  size_t resent = 0;                    // values of the record that were sent again
  std::ptrdiff_t top_resent = 0;        // top log-probabilities of them
  std::shared_ptr<AccountTurns> turns;  // of its account
  uint64_t served = 0;                  // Candidate::served of its prompt
  TimePoint admitted{};
  bool has_waited = false;                 // it has waited for slots, which are kept for it
  std::optional<TimePoint> stalled_since;  // when the stream ran out of room; none: it has room

  // Changes the phase by the table above. The process stops if the event cannot happen.
  void apply(GenerationEvent event);
  // Whether the call may wait for slots.
  bool may_wait() const { return !has_waited && request.max_queue_time > Duration(0); }
  bool ended() const { return phase == GenerationPhase::kEnded; }

  // Whether a sample may end at any value, so that each value must be examined before the next one
  // is sampled.
  bool may_stop(const Spec& spec) const {
    return request.may_stop() ||
           (!request.ignore_eos && (!spec.eos.empty() || request.end_of_turn.has_value()));
  }
  std::span<const int32_t> unfed() const { return std::span(request.prompt).subspan(fed); }
  // Whether the state after the answer may be kept. The values that the only sample consumes are
  // then added to `prefix`.
  bool keeps_answer() const { return least_answer > 0; }
  // The key to keep the state after the answer with. Null: not kept, or the sequence is too short.
  const PrefixKey* answered() const {
    return keeps_answer() && prefix->length >= least_answer ? &*prefix : nullptr;
  }
  // The eviction class of a state that the call has made: kFound if the call began at a kept state,
  // otherwise `fresh`.
  PrefixWorth worth_of(PrefixWorth fresh) const { return cached > 0 ? PrefixWorth::kFound : fresh; }
  // The maximum number of values of unfed() for one step, which must not pass the length `keep_at`.
  int64_t most_inputs() const {
    const int64_t most = std::ssize(request.prompt);
    return prefix && prefix->length < keep_at ? keep_at - prefix->length : most;
  }
  int live_samples() const;
  // The maximum number of values of all samples in launches that are not collected yet.
  int ahead() const;
};

// Sends values of the record while the stream has room. True once all have been sent.
bool resend(Generation& generation, TimePoint now);

// Adds one sampled value to a sample: updates the session's position and pending value, and the
// stream. Returns why the sample finishes with this value; none: it continues.
std::optional<FinishReason> take_value(Generation& generation, int index, const Emitted& emitted,
                                       const Spec& spec, TimePoint now);

// Reserves memory in a sample, so that watch_for_stop() allocates nothing.
void reserve_tails(const GenerateRequest& request, Sample& sample);

// Fills the tails of the first sample from the values of the record.
void restore_tails(Generation& generation);

// Adds the value that was sampled at `position` to the tails of the sample. True if the value
// completes a stop sequence or a stop text.
bool watch_for_stop(const GenerateRequest& request, int32_t value, int64_t position,
                    Sample& sample);

}  // namespace runnel
