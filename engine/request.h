// What the engine is asked for, and what it answers with. Plain data; no wire format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kernels/control.h"

namespace runnel {

class Tokenizer;

// A session's name. `owner` is empty until there are keys.
struct SessionKey {
  std::string owner;
  std::string id;
  friend auto operator<=>(const SessionKey&, const SessionKey&) = default;
};

// How values are grouped on their way out. The first goes at once.
struct Delivery {
  int max_values = 16;
  Duration max_delay = std::chrono::milliseconds(20);

  friend bool operator==(const Delivery&, const Delivery&) = default;
};

// One call to Generate.
struct GenerateRequest {
  std::string owner;
  std::optional<std::string> session;  // goes on from this session; none: a fresh sequence
  std::vector<int32_t> prompt;         // may be empty where there is a pending or a begin value
  int samples = 1;                     // independent continuations of the prompt
  std::optional<int64_t>
      max_values;                    // to sample, at most; none: to the last position; 0: feed only
  std::optional<Duration> max_time;  // from admission
  std::optional<uint64_t> seed;      // none: from request_id, or else drawn
  Sampling sampling;                 // validated by the engine
  std::vector<std::vector<int32_t>> stop;
  std::vector<std::string> stop_text;  // in the bytes of the values sampled
  std::shared_ptr<const Tokenizer> tokenizer =
      nullptr;  // gives a value's bytes; stop_text needs it
  int top_log_probs = 0;
  std::optional<bool>
      keep;  // default: samples == 1 and session named. False: the session, if any, is not changed
  std::optional<int64_t> expected_position;
  // Names the call, so that it can be asked again: the same request with the same id gets the same
  // stream.
  std::string request_id;
  Delivery delivery;

  // A sample may end at any value: each must be looked at before the next.
  bool may_stop() const { return !stop.empty() || !stop_text.empty(); }
  friend bool operator==(const GenerateRequest&, const GenerateRequest&) = default;
};

// The first event of a generation.
struct Started {
  std::string session;  // empty when nothing is kept
  uint64_t seed = 0;
  int64_t position = 0;  // of the first value of this call, given or sampled
  std::string numerics;
};

enum class FinishReason { kLength, kStop, kEnd, kTime };

// The last event of one sample.
struct Finished {
  int sample = 0;
  FinishReason reason = FinishReason::kLength;
  int64_t prompt_values = 0;
  int64_t sampled_values = 0;  // a first value that the spec gives included
  int64_t position = 0;        // of the next value
  Duration elapsed{0};
};

enum class SessionState { kNew, kPrompting, kGenerating, kIdle, kBusy, kEnded };

struct SessionInfo {
  SessionKey key;
  SessionState state = SessionState::kNew;
  int64_t position = 0;  // of its next value
  Duration idle{0};      // since its last call ended; 0 while one runs
};

struct SessionPage {
  std::vector<SessionInfo> sessions;  // by id
  std::string next;                   // the id to go on after; empty: no more
};

}  // namespace runnel
