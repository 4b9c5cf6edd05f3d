// One running Generate call: its samples, and what has come of each.
//
// prompting: the first sample's session is fed the prompt. Then the state is copied to the others,
// and all of them decode; each finishes for itself. Kept apart from the scheduler so that it can be
// read, and tested, without one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/session.h"
#include "engine/token_stream.h"

namespace runnel {

struct Sample {
  Session* session = nullptr;  // null once finished and given back
  int64_t remaining = 0;       // values still to come
  int64_t sampled = 0;         // values that have come
  std::vector<int32_t> tail;   // the last values, as far as a stop sequence reaches
  std::string text_tail;       // the last bytes, as far as a stop text reaches
  bool finished = false;
};

struct Generation {
  GenerateRequest request;
  std::shared_ptr<TokenStream> stream;
  std::vector<std::unique_ptr<Session>> ephemeral;  // sessions that nobody else knows
  std::vector<Sample> samples;
  uint64_t seed = 0;
  size_t fed = 0;                      // prompt values given to the first sample's session
  bool sampling = false;               // the prompt is in; samples decode
  bool begins = false;                 // the spec's first value is to be emitted
  std::shared_ptr<CallRecord> record;  // where the call has a request_id and a session
  size_t to_replay = 0;                // values that an earlier try was sent: they go out first
  size_t replayed = 0;                 // of them
  std::ptrdiff_t top_replayed = 0;     // of the record's top log-probabilities
  bool resend = false;                 // the earlier try was finished: nothing is left to sample
  bool ended = false;
  TimePoint admitted{};
  std::optional<TimePoint> stalled_since;  // rows left out for want of room since then

  std::span<const int32_t> unfed() const { return std::span(request.prompt).subspan(fed); }
  bool replaying() const { return replayed < to_replay; }
  int live_samples() const;
};

// Sends as many of the record's values as the stream has room for.
void replay(Generation& generation, TimePoint now);

// Takes one value into a sample: position, pending, stream. What it finished with, if it did.
std::optional<FinishReason> take_value(Generation& generation, int index, const Emitted& emitted,
                                       int64_t max_length, TimePoint now);

// Makes room in a sample for what stopping needs, so that watch_for_stop() allocates nothing.
void reserve_tails(const GenerateRequest& request, Sample& sample);

// Notes that the sample has sampled `value`. True when this has completed a stop sequence or a stop
// text.
bool watch_for_stop(const GenerateRequest& request, int32_t value, Sample& sample);

}  // namespace runnel
