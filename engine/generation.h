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

#include "engine/planner.h"
#include "engine/session.h"
#include "engine/token_stream.h"
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

// The turns of an account whose calls run.
struct OwnerTurns {
  Owner owner;
  std::shared_ptr<AccountUsage> usage;  // null where there are no keys
  uint64_t gathered = 0;                // the last plan in which it had candidates
  int index = 0;                        // of the owner in that plan
};

struct Sample {
  Session* session = nullptr;  // null once the sample has finished
  int64_t remaining = 0;       // values still to sample
  int64_t sampled = 0;         // values sampled
  int ahead = 0;               // steps of launches whose values have not come yet
  std::vector<int32_t> tail;   // the last values, as far back as a stop sequence reaches
  std::string text_tail;       // the last bytes, as far back as a stop text reaches
  bool finished = false;
  uint64_t served = 0;                  // Candidate::served, of its decoding row
  std::optional<TimePoint> last_value;  // when this call sampled the last one
};

struct Generation {
  GenerateRequest request;
  RequestDigest digest{};  // of the request, where it has a request_id
  std::shared_ptr<TokenStream> stream;
  GenerationPhase phase = GenerationPhase::kAdmitted;
  std::vector<Sample> samples;
  uint64_t seed = 0;
  size_t fed = 0;                      // prompt values given to the session of the first sample
  bool begins = false;                 // the model's first value is to be emitted
  std::shared_ptr<CallRecord> record;  // where the call has a request_id and a session
  size_t resent = 0;                   // values of the record sent again
  std::ptrdiff_t top_resent = 0;       // top log-probabilities of the record sent again
  std::shared_ptr<OwnerTurns> turns;   // of its account
  uint64_t served = 0;                 // Candidate::served, of its prompt
  TimePoint admitted{};
  bool has_waited = false;                 // for its slots, which are kept for it
  std::optional<TimePoint> stalled_since;  // since then the stream has had no room

  // Follows the table; an event that cannot happen stops the process.
  void apply(GenerationEvent event);
  // It may be given a place among the calls that wait for slots.
  bool may_wait() const { return !has_waited && request.max_queue_time > Duration(0); }
  bool ended() const { return phase == GenerationPhase::kEnded; }

  // The values at which a sample of this call ends. `spec` outlives them.
  std::span<const int32_t> eos(const Spec& spec) const {
    return request.ignore_eos ? std::span<const int32_t>() : spec.eos;
  }
  // A sample may end at any value, so each must be examined before the next is sampled.
  bool may_stop(const Spec& spec) const { return request.may_stop() || !eos(spec).empty(); }
  std::span<const int32_t> unfed() const { return std::span(request.prompt).subspan(fed); }
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
