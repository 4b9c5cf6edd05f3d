// One running Generate call: its phase, its samples, and what has come of each. Independent of the
// scheduler, so that it can be tested alone.
//
//              kResend     kFeed       kSample    kEnd
//   admitted   resending   prompting   sampling   ended
//   resending  -           -           sampling   ended
//   prompting  -           -           sampling   ended
//   sampling   -           -           -          ended
//   ended      -           -           -          -
//
// - resending: a retry is sent the values that the earlier try has sampled.
// - prompting: the session of the first sample consumes the prompt.
// - sampling: every sample has a copy of that state, decodes, and finishes by itself.
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
  kResend,  // an earlier try has sampled values: they go out first
  kFeed,    // there are prompt values to consume
  kSample,  // the prompt is consumed
  kEnd,     // every sample has finished, or the call ends with a status
};

// The table above; none where the event cannot happen.
std::optional<GenerationPhase> next_phase(GenerationPhase phase, GenerationEvent event);

struct Sample {
  Session* session = nullptr;  // null once the sample has finished
  int64_t remaining = 0;       // values still to sample
  int64_t sampled = 0;         // values sampled
  int ahead = 0;               // steps of launches whose values have not come yet
  std::vector<int32_t> tail;   // the last values, as far back as a stop sequence reaches
  std::string text_tail;       // the last bytes, as far back as a stop text reaches
  bool finished = false;
  uint64_t served = 0;                               // Candidate::served, of its decoding row
  std::optional<TimePoint> first_value, last_value;  // when this call sampled them
};

struct Generation {
  GenerateRequest request;
  RequestDigest digest{};  // of the request, where it has a request_id
  std::shared_ptr<TokenStream> stream;
  GenerationPhase phase = GenerationPhase::kAdmitted;
  std::vector<Sample> samples;
  uint64_t seed = 0;
  size_t fed = 0;                       // prompt values given to the session of the first sample
  bool begins = false;                  // the model's first value is to be emitted
  int64_t cached = 0;                   // prompt values that were not read: a kept state has them
  std::optional<PrefixKey> prefix;      // what the first sample has consumed; none: nothing is kept
  int64_t keep_at = 0;                  // the length at which the state is kept; 0: at none
  int64_t least_answer = 0;             // the least length to keep after the answer; 0: not at all
  std::shared_ptr<CallRecord> record;   // where the call has a request_id and a session
  size_t resent = 0;                    // values of the record sent again
  std::ptrdiff_t top_resent = 0;        // top log-probabilities of the record sent again
  std::shared_ptr<AccountTurns> turns;  // of its account
  uint64_t served = 0;                  // Candidate::served, of its prompt
  TimePoint admitted{};
  bool has_waited = false;                 // for its slots, which are kept for it
  std::optional<TimePoint> stalled_since;  // since then the stream has had no room

  // Follows the table; an event that cannot happen stops the process.
  void apply(GenerationEvent event);
  // It may be given a place among the calls that wait for slots.
  bool may_wait() const { return !has_waited && request.max_queue_time > Duration(0); }
  bool ended() const { return phase == GenerationPhase::kEnded; }

  // A sample may end at any value, so each must be examined before the next is sampled.
  bool may_stop(const Spec& spec) const {
    return request.may_stop() ||
           (!request.ignore_eos && (!spec.eos.empty() || request.end_of_turn.has_value()));
  }
  std::span<const int32_t> unfed() const { return std::span(request.prompt).subspan(fed); }
  // The state after the answer is to be kept, so what the only sample consumes is noted.
  bool keeps_answer() const { return least_answer > 0; }
  // It is long enough for that now.
  const PrefixKey* answered() const {
    return keeps_answer() && prefix->length >= least_answer ? &*prefix : nullptr;
  }
  // The worth of a state that the call has made: `fresh`, unless it began at a kept one.
  PrefixWorth worth_of(PrefixWorth fresh) const { return cached > 0 ? PrefixWorth::kFound : fresh; }
  // The most of unfed() that may be fed in one step: up to the place where the state is kept.
  int64_t most_inputs() const {
    const int64_t most = std::ssize(request.prompt);
    return prefix && prefix->length < keep_at ? keep_at - prefix->length : most;
  }
  int live_samples() const;
  // Values of all samples that are on their way, at most.
  int ahead() const;
};

// Sends as many of the record's values as the stream has room for. True when all have been sent.
bool resend(Generation& generation, TimePoint now);

// Takes one value into a sample: position, pending value, stream. Returns why the sample finishes
// with it, if it does.
std::optional<FinishReason> take_value(Generation& generation, int index, const Emitted& emitted,
                                       const Spec& spec, TimePoint now);

// Reserves in a sample the memory that watch_for_stop() needs, so that it allocates nothing.
void reserve_tails(const GenerateRequest& request, Sample& sample);

// Notes in the first sample the values of the record, as far back as a stop can reach.
void restore_tails(Generation& generation);

// Notes that the sample has sampled `value` at `position`. True when this completes a stop sequence
// or a stop text.
bool watch_for_stop(const GenerateRequest& request, int32_t value, int64_t position,
                    Sample& sample);

}  // namespace runnel
