// One running Score call: a sequence of its own, which gets its values message by message. Only the
// scheduler's thread uses it, except for the atomic flags and `asked`.
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
            int top_log_probs, std::function<void()> accepted)
      : caller(std::move(caller)),
        origin(std::move(origin)),
        begin(begin),
        keep(keep),
        max_queue_time(max_queue_time),
        top_log_probs(top_log_probs),
        accepted(std::move(accepted)) {}

  const Caller caller;
  const Origin origin;
  const bool begin;  // in a new sequence, the spec's first value comes before the first chunk
  const bool keep;   // the call continues the session that it starts from
  const Duration max_queue_time;  // how long its first message may wait for a slot
  const int top_log_probs;        // how many of the most likely values to return at each position
  // Called once the first message has a slot or waits for one. May be empty.
  const std::function<void()> accepted;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> admitted{false};  // whether it has had a slot
  TimePoint asked{};                  // when the engine got the last message

  Feed feed;                  // the values of the current message
  std::optional<Status> end;  // the answer to later messages, once the call has ended
  Duration waited{0};         // the time between messages, up to the last one
  TimePoint answered{};       // when the last message was answered
  ScoredChunk scored;
  std::function<void(Result<ScoredChunk>)> done;  // empty between messages

  bool over() const { return end.has_value(); }
  // The total time that it has held its slot without a message.
  Duration waits(TimePoint now) const { return done ? waited : waited + (now - answered); }

  // Answers the current message with `outcome`.
  void complete(Result<ScoredChunk> outcome, TimePoint now) {
    answered = now;
    feed.values = {};
    feed.fed = 0;
    const auto call = std::exchange(done, nullptr);
    if (call) call(std::move(outcome));
  }

  // Ends the call, which must not hold a session any more.
  void finish(Status status, TimePoint now) {
    end = status;
    feed.turns.reset();
    complete(std::move(status), now);
  }
};

}  // namespace runnel
