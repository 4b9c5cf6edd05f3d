// One running Score call: a sequence of its own, fed message by message. Or the end of a rewind,
// which feeds values again and asks for no scores. All but the two flags
// and the time of asking belongs to the scheduler's thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/generation.h"
#include "engine/request.h"
#include "engine/session.h"

namespace runnel {

class ScoreCall {
 public:
  ScoreCall(Caller caller, Origin origin, bool begin, bool keep, Duration max_queue_time)
      : caller(std::move(caller)),
        origin(std::move(origin)),
        begin(begin),
        keep(keep),
        max_queue_time(max_queue_time) {}

  const Caller caller;
  const Origin origin;
  const bool begin;  // the first chunk of a new sequence comes after the spec's first value
  const bool keep;   // the call goes on in the session that it starts from
  const Duration max_queue_time;  // how long its first message may wait for a slot
  bool silent = false;            // it asks for no scores
  std::atomic<bool> cancelled{false};
  std::atomic<bool> admitted{false};  // it has a slot, or has had one
  TimePoint asked{};                  // when the engine was given the last message

  Session* session = nullptr;         // null before the first message, and once over
  std::optional<Status> end;          // once its slot has been given back: what later messages get
  std::vector<int32_t> values;        // of the current message
  size_t fed = 0;                     // of `values`
  TimePoint came{};                   // when the message came
  Duration waited{0};                 // between its messages, up to the last
  TimePoint answered{};               // when the last message was answered
  std::shared_ptr<OwnerTurns> turns;  // null before the first message, and once over
  uint64_t served = 0;                // Candidate::served
  ScoredChunk scored;
  std::function<void(Result<ScoredChunk>)> done;  // empty between messages

  bool over() const { return end.has_value(); }
  // How long it has held its slot without a message, in all.
  Duration waits(TimePoint now) const { return done ? waited : waited + (now - answered); }

  std::span<const int32_t> unfed() const { return std::span(values).subspan(fed); }

  // Hands the outcome of the message to its owner.
  void complete(Result<ScoredChunk> outcome, TimePoint now) {
    answered = now;
    values = {};
    fed = 0;
    const auto call = std::exchange(done, nullptr);
    if (call) call(std::move(outcome));
  }
};

}  // namespace runnel
