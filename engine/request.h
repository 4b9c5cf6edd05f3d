// Requests to the engine and its answers. Plain data, independent of the wire format.
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

// A session's name. `owner` is empty where there are no keys.
struct SessionKey {
  std::string owner;
  std::string id;
  friend auto operator<=>(const SessionKey&, const SessionKey&) = default;
};

// Where a sequence starts: in a session, in a stored state, or, with neither, before its first
// value.
struct Origin {
  std::optional<std::string> session, state;
  std::optional<int64_t> expected_position = {};  // where it must be; none: anywhere
  std::string model = {};                         // as GenerateRequest::model
};

// How values are grouped on their way out. The first goes at once.
struct Delivery {
  int max_values = 16;
  Duration max_delay = std::chrono::milliseconds(20);

  friend bool operator==(const Delivery&, const Delivery&) = default;
};

// One call to Generate.
struct GenerateRequest {
  Caller caller;
  std::string model;  // the name by which the caller asked for it; empty: its own
  // The session or the stored state to continue from; none: a fresh sequence.
  std::optional<std::string> session, state;
  // May be empty where the sequence has a pending value or the model a first value of its own.
  std::vector<int32_t> prompt;
  // The values for a named session that has already begun. They replace `prompt`.
  std::optional<NextTurn> turn = {};
  bool begin = false;  // a prompt of a new sequence comes after the spec's first value
  // How many values of the prompt later prompts are likely to begin with; none: all.
  std::optional<int64_t> shared;
  int samples = 1;  // independent continuations of the prompt
  // To sample, at most. None: as many as the engine allows, up to the last position. 0: only feed
  // the prompt.
  std::optional<int64_t> max_values;
  std::optional<Duration> max_time;  // from admission
  Duration max_queue_time{0};        // how long it may wait for slots before its admission
  std::optional<uint64_t> seed;      // none: follows from request_id, or is drawn
  Sampling sampling;
  std::shared_ptr<const Penalties> penalties;  // null: none
  std::vector<std::vector<int32_t>> stop;
  std::vector<std::string> stop_text;       // in the bytes of the values sampled
  std::optional<int32_t> end_of_turn = {};  // ends a sample as the values of Spec::eos do
  bool ignore_eos = false;  // a sample continues after end_of_turn and the values of Spec::eos
  // Gives the bytes of a value; stop_text needs it.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  int top_log_probs = 0;
  // Whether the sequence stays as a session. False: the named session, if any, does not change.
  // None: true if one sample continues a named session.
  std::optional<bool> keep;
  std::optional<int64_t> expected_position;
  // Names the call for a retry: the same request with the same id gets the same stream.
  std::string request_id;
  Delivery delivery;
  TimePoint came{};        // to the engine, which sets it
  int64_t held_bytes = 0;  // of memory that the call holds besides, as its reader counts it

  // Slots that the call needs, unless it is a retry that finds its session.
  int slots() const { return samples - (in_place() ? 1 : 0); }
  // The call makes a session under the name of its request_id, which a retry finds.
  bool makes_named() const { return !session && keep.value_or(false) && !request_id.empty(); }
  // `value`, unless it is the first of a sequence, ends a sample. `eos`: the model's.
  bool ends_at(int32_t value, std::span<const int32_t> eos) const;
  // A sample may end where the request says.
  bool may_stop() const { return !stop.empty() || !stop_text.empty(); }
  // The call continues the session that it starts from.
  bool in_place() const { return session && keep.value_or(samples == 1); }
};

// The seed of a request that names none. It follows from the request_id, so that a retry gets the
// same stream; without one it is drawn.
uint64_t seed_of(const std::string& request_id);

// The id of the session that a call with this request_id makes (makes_named()).
std::string made_session_id(const std::string& request_id);

// Sets the temperature that a caller asks for. Below kLeastTemperature, down to 0, it is greedy.
void set_temperature(float temperature, Sampling& sampling);

// Bytes of memory outside of the request that grow with what the client sends.
int64_t bytes_of(const GenerateRequest& request);

// A generation waits for slots. The event comes before Started, and again when the place changes.
struct Queued {
  int place = 1;                 // 1: next in line
  std::optional<Duration> wait;  // how long it is expected to wait; none: nobody knows

  friend bool operator==(const Queued&, const Queued&) = default;
};

// The first event of a generation that has its slots.
struct Started {
  std::string session;  // empty when nothing is kept
  uint64_t seed = 0;
  int64_t position = 0;  // of the first value of this call, given or sampled
  std::string numerics;
  Duration queued{0};                   // before the call was admitted
  TurnPlace place = TurnPlace::kStart;  // by which a turn became the prompt (take_turn())
};

enum class FinishReason { kLength, kStop, kEnd, kTime, kEos };

// The last event of one sample.
struct Finished {
  int sample = 0;
  FinishReason reason = FinishReason::kLength;
  int64_t prompt_values = 0;
  int64_t cached_values = 0;   // of prompt_values: not read, because a state was kept after them
  int64_t sampled_values = 0;  // including a first value that the model gives
  int64_t position = 0;        // of the next value
  Duration elapsed{0};
  std::optional<Duration> first_value = {};  // of `elapsed`, until one was sampled
};

enum class SessionPhase { kNew, kPrompting, kGenerating, kMoving, kIdle, kEnded };
inline constexpr int kSlotStates = 5;  // all but kEnded hold a slot

struct SessionInfo {
  SessionKey key;
  SessionPhase state = SessionPhase::kNew;
  int64_t position = 0;  // of its next value
  Duration idle{0};      // since its last use; 0 while a call runs on it
};

struct SessionPage {
  std::vector<SessionInfo> sessions;  // by id
  std::string next;                   // the id after which the next page begins; empty: no more
};

// The answer to one message of a Score call.
struct ScoredChunk {
  int64_t position = 0;  // of log_probs[0]
  // Natural logarithms, one for each value, except for a first value, which is not predicted.
  std::vector<float> log_probs;
  // The most likely values in the place of each of these, `top_log_probs` a value.
  std::vector<TopLogProb> top = {};
  int top_log_probs = 0;
  std::optional<Duration> queued = std::nullopt;  // with the first: before the call was admitted
};

struct EngineStats {
  int64_t sessions = 0;                               // slots in all
  int64_t sessions_free = 0;                          // slots not leased, or of spare sessions
  std::array<int64_t, kSlotStates> slots_by_state{};  // the others, by their sessions
  int64_t steps = 0;                                  // since the start
  int64_t values_sampled = 0;
  int64_t values_consumed = 0;  // of prompts and of Score calls
  int64_t waiting = 0;          // calls that wait for slots
  int64_t prefix_bytes = 0;     // of states that are kept for prompts that begin alike
};

}  // namespace runnel
