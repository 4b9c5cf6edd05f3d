// One running Score call: a sequence of its own, fed message by message. Only the scheduler's
// thread touches it, except for the two flags and the time of asking.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "engine/feed.h"
#include "engine/request.h"

namespace runnel {

class ScoreCall {
 public:
  ScoreCall(Caller caller, Origin origin, bool begin, bool keep, Duration max_queue_time,
            int top_log_probs)
      : caller(std::move(caller)),
        origin(std::move(origin)),
        begin(begin),
        keep(keep),
        max_queue_time(max_queue_time),
        top_log_probs(top_log_probs) {}

  const Caller caller;
  const Origin origin;
  const bool begin;  // the first chunk of a new sequence comes after the spec's first value
  const bool keep;   // the call continues the session that it starts from
  const Duration max_queue_time;  // how long its first message may wait for a slot
  const int top_log_probs;        // most likely values that it asks for in the place of each value
  std::atomic<bool> cancelled{false};
  std::atomic<bool> admitted{false};  // it has a slot, or has had one
  TimePoint asked{};                  // when the engine was given the last message

  Feed feed;                  // of the current message
  std::optional<Status> end;  // once its slot has been given back: what later messages get
  Duration waited{0};         // between its messages, up to the last
  TimePoint answered{};       // when the last message was answered
  ScoredChunk scored;
  std::function<void(Result<ScoredChunk>)> done;  // empty between messages

  bool over() const { return end.has_value(); }
  // How long it has held its slot without a message, in all.
  Duration waits(TimePoint now) const { return done ? waited : waited + (now - answered); }

  // Hands the outcome of the message to its client.
  void complete(Result<ScoredChunk> outcome, TimePoint now) {
    answered = now;
    feed.values = {};
    feed.fed = 0;
    const auto call = std::exchange(done, nullptr);
    if (call) call(std::move(outcome));
  }

  // Ends the call, which holds no session any more.
  void finish(Status status, TimePoint now) {
    end = status;
    feed.turns.reset();
    complete(std::move(status), now);
  }
};

}  // namespace runnel
