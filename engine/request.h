// The requests to the engine and its answers, as plain data that depends on no wire format.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/caller.h"
#include "engine/next_turn.h"
#include "kernels/control.h"
#include "kernels/penalties.h"

namespace runnel {

class Tokenizer;
struct StoredCall;

// A session's name. `owner` is empty if the server has no keys.
struct SessionKey {
  std::string owner;
  std::string id;
  friend auto operator<=>(const SessionKey&, const SessionKey&) = default;
};

// Where a sequence starts: from a session, from a stored state, or, if neither is given, before its
// first value.
struct Origin {
  std::optional<std::string> session, state;
  std::optional<int64_t> expected_position = {};  // the position that it must have; none: any
  std::string model = {};                         // as GenerateRequest::model
};

// How sampled values are grouped before they are sent. The first value is sent at once.
struct Delivery {
  int max_values = 16;
  Duration max_delay = std::chrono::milliseconds(20);

  friend bool operator==(const Delivery&, const Delivery&) = default;
};

// One call to Generate.
struct GenerateRequest {
  Caller caller;
  std::string model;  // the name that the caller asked for; empty: the model's own name
  // The session or the stored state to continue from. None: a new sequence.
  std::optional<std::string> session, state;
  // May be empty if the sequence has a pending value, or the model has a first value of its own.
  std::vector<int32_t> prompt;
  // The values for a named session that has already begun. They replace `prompt`.
  std::optional<NextTurn> turn = {};
  bool begin = false;  // in a new sequence, the spec's first value comes before the prompt
  // How many of the prompt's first values are likely to begin later prompts, too. None: all.
  std::optional<int64_t> shared;
  int samples = 1;  // independent continuations of the prompt
  // The maximum number of values to sample. None: as many as the engine allows, up to the last
  // position. 0: only feed the prompt.
  std::optional<int64_t> max_values;
  std::optional<Duration> max_time;  // the maximum time from admission to the end
  Duration max_queue_time{0};        // how long it may wait for slots before its admission
  std::optional<uint64_t> seed;      // none: seed_of(request_id)
  Sampling sampling;
  std::shared_ptr<const Penalties> penalties;  // null: none
  std::vector<std::vector<int32_t>> stop;
  std::vector<std::string> stop_text;       // a sample ends at these texts in its bytes
  std::optional<int32_t> end_of_turn = {};  // ends a sample, like the values of Spec::eos
  bool ignore_eos = false;  // a sample continues after end_of_turn and the values of Spec::eos
  // Gives the bytes of each value. Required if there is a stop_text.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  int top_log_probs = 0;
  // Whether the sequence stays as a session. False: the named session, if any, does not change.
  // None: true if one sample continues a named session.
  std::optional<bool> keep;
  std::optional<int64_t> expected_position;
  // The id of the session that the call makes, if it makes one and has no request_id. Empty: the
  // engine draws one.
  std::string made = {};
  // Names the call for a retry: the same request with the same id gets the same stream.
  std::string request_id;
  Delivery delivery;
  // A call on a session of a store tells the store of its record (engine/call_record.h). Null: the
  // session is in no store.
  std::shared_ptr<StoredCall> stored = nullptr;
  TimePoint came{};        // when the engine got the request; set by the engine
  int64_t held_bytes = 0;  // bytes of other memory that the call holds

  // The slots that the call needs. A retry that finds its session needs none.
  int slots() const { return samples - (in_place() ? 1 : 0); }
  // Whether the call makes a session whose name follows from its request_id, so that a retry finds
  // it.
  bool makes_named() const { return !session && keep.value_or(false) && !request_id.empty(); }
  // Whether `value` ends a sample, if it is not the first value of a sequence. `eos` is Spec::eos.
  bool ends_at(int32_t value, std::span<const int32_t> eos) const;
  // Whether the request has a condition at which a sample ends.
  bool may_stop() const { return !stop.empty() || !stop_text.empty(); }
  // Whether the call continues the session that it starts from.
  bool in_place() const { return session && keep.value_or(samples == 1); }
};

// The seed of a request that names no seed. It follows from the request_id, so that a retry gets
// the same stream. If the request_id is empty, the seed is drawn at random.
uint64_t seed_of(const std::string& request_id);

// The id of the session that a call with this request_id makes (makes_named()).
std::string made_session_id(const std::string& request_id);
// An id for a new session, of 128 bits from the system, because ids must not be guessable.
std::string random_session_id();

// Sets the temperature that a caller asks for. If it is below kLeastTemperature, sampling is
// greedy.
void set_temperature(float temperature, Sampling& sampling);

// The bytes of memory outside of the object, as far as they grow with the client's request.
int64_t bytes_of(const GenerateRequest& request);

// A generation waits for slots. The event comes before Started, and again when the place changes.
struct Queued {
  int place = 1;                 // 1: next in line
  std::optional<Duration> wait;  // the expected time until its admission; none: unknown

  friend bool operator==(const Queued&, const Queued&) = default;
};

// The first event of a generation that has its slots.
struct Started {
  std::string session;  // empty when nothing is kept
  uint64_t seed = 0;
  int64_t position = 0;  // the position of the call's first value, given or sampled
  std::string numerics;
  Duration queued{0};                   // the time before the call was admitted
  TurnPlace place = TurnPlace::kStart;  // by which a turn became the prompt (take_turn())
};

enum class FinishReason { kLength, kStop, kEnd, kTime, kEos };

// The last event of one sample.
struct Finished {
  int sample = 0;
  FinishReason reason = FinishReason::kLength;
  int64_t prompt_values = 0;
  int64_t cached_values = 0;   // prompt_values that were not read: a state after them was kept
  int64_t sampled_values = 0;  // including a first value that the model gives
  int64_t position = 0;        // the position of the next value
  Duration elapsed{0};
  std::optional<Duration> first_value = {};  // the part of `elapsed` before the first sampled value
};

enum class SessionPhase { kNew, kPrompting, kGenerating, kMoving, kIdle, kEnded };
inline constexpr int kSlotStates = 5;  // all but kEnded hold a slot

struct SessionInfo {
  SessionKey key;
  SessionPhase state = SessionPhase::kNew;
  int64_t position = 0;  // the position of its next value
  Duration idle{0};      // the time since its last use; 0 while a call runs on it
};

struct SessionPage {
  std::vector<SessionInfo> sessions;  // in the order of their ids
  std::string next;                   // the id after which the next page begins; empty: no more
};

// The answer to one message of a Score call.
struct ScoredChunk {
  int64_t position = 0;  // the position of log_probs[0]
  // Natural logarithms, one for each value. A first value of a sequence has none: it is not
  // predicted.
  std::vector<float> log_probs;
  // The most likely values at the position of each of them: `top_log_probs` for each position.
  std::vector<TopLogProb> top = {};
  int top_log_probs = 0;
  std::optional<Duration> queued = std::nullopt;  // in the first answer: the time before admission
};

struct EngineStats {
  int64_t sessions = 0;       // all slots
  int64_t sessions_free = 0;  // slots that are not leased, or whose session is spare
  std::array<int64_t, kSlotStates> slots_by_state{};  // the other slots, by their sessions' phases
  int64_t steps = 0;                                  // since the start
  int64_t values_sampled = 0;
  int64_t values_consumed = 0;  // of prompts and of Score calls
  int64_t waiting = 0;          // calls that wait for slots
  int64_t prefix_bytes = 0;     // bytes of the states that are kept for prompts that begin alike
};

}  // namespace runnel
