// The calls that wait for slots, and whose turn it is: callers take turns, and the calls of a
// caller go on oldest first. A caller who joins comes last in the round.
//
// Slots that come free are kept for the call whose turn it is until it has all that it needs, so
// that one that needs many does not starve behind those that need one. It keeps them no longer than
// a second for each; then it goes to the end of the round and of its caller's calls, and nothing is
// kept for calls that need several for as long again, so that the others do not starve behind them.
//
// Knows neither sessions nor streams: who asks moves the slots. No function allocates but add().
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/generation.h"
#include "engine/score_call.h"

namespace runnel {

struct QueuedCall {
  // The turns of its caller, shared by the caller's calls.
  struct Turns {
    uint64_t served = 0;  // the number of its last turn, or of the last before it joined
    int calls = 0;        // scratch
  };

  std::unique_ptr<Generation> generation;  // one of these two
  std::shared_ptr<ScoreCall> score;
  std::string account;  // of its caller
  int slots = 1;
  int64_t bytes = 0;  // of memory that it holds while it waits
  TimePoint until{};  // it waits no longer

  // The queue's.
  std::shared_ptr<Turns> turns;
  std::optional<TimePoint> keeps_since;  // since then slots have been kept for it
  uint64_t number = 0;                   // as it came
  int rank = 0;                          // scratch: among the calls of its caller

  // What its client was told last, and when.
  std::optional<Queued> told;
  TimePoint told_at{};
};

// How fast slots come free while calls wait, over about the last ten seconds of waiting.
class SlotRate {
 public:
  // `freed` slots in all have come free by now. `waiting`: calls wait from here on.
  void note(TimePoint now, int64_t freed, bool waiting);
  // How long so many take; none where none has come free for long.
  std::optional<Duration> time_for(int64_t slots) const;

 private:
  bool waiting_ = false;
  TimePoint last_{};
  int64_t last_freed_ = 0;
  double seconds_ = 0, slots_ = 0;  // decaying sums
};

class SlotQueue {
 public:
  // May hold so many calls with so many bytes. A single call may have more bytes.
  SlotQueue(int64_t calls, int64_t bytes);

  bool empty() const { return calls_.empty(); }
  int size() const { return static_cast<int>(calls_.size()); }

  // False, with `call` untouched, where the queue is full.
  [[nodiscard]] bool add(QueuedCall&& call);

  // The call that goes on now, `free` slots being free: take() it. Null where there is none. Calls
  // that not `may` go on are passed over, and miss nothing.
  QueuedCall* next(TimePoint now, int free, const std::function<bool(const QueuedCall&)>& may);
  // The last next() has found a call that has its turn: what is free is its.
  bool keeps() const { return keeps_; }
  // Takes a call out that goes on; with this its caller has had a turn.
  QueuedCall take(QueuedCall& call);
  // Takes out the calls for which `leaves` is true. It may move from them.
  void remove_if(const std::function<bool(QueuedCall&)>& leaves);
  // Null where there is none.
  QueuedCall* find(const std::function<bool(const QueuedCall&)>& is_it);

  // All calls in the order of their turns, each counted as needing no more than it finds. Valid
  // until the queue changes.
  std::span<QueuedCall* const> in_order();

 private:
  using Calls = std::list<QueuedCall>;
  QueuedCall* first(TimePoint now, int free, const std::function<bool(const QueuedCall&)>& may);
  void put_back(QueuedCall& call);
  void forget(const QueuedCall& call);

  const size_t most_calls_;
  const int64_t most_bytes_;
  Calls calls_;                                                      // as they came
  std::map<std::string, std::shared_ptr<QueuedCall::Turns>> turns_;  // by account
  uint64_t turn_ = 0, number_ = 0;                                   // the last that were given
  int64_t bytes_ = 0;                                                // of calls_
  bool keeps_ = false;
  TimePoint rests_until_{};         // until then nothing is kept for calls that need several
  std::vector<QueuedCall*> order_;  // reserved
};

}  // namespace runnel
