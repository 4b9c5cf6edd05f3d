// The queue of calls that wait for slots. Accounts take turns, and the oldest call of an account
// comes first. A new account comes last in the round.
//
// Freed slots are kept for the call whose turn it is until it has all slots that it needs. So a
// call that needs many slots does not starve while others need one. But a call keeps slots for at
// most a second for each slot that it needs. After that time the call moves to the end of the round
// and of its account's calls. Then, for the same length of time, no slots are kept for calls that
// need more slots than are free, so that the other calls do not starve, either.
//
// The queue knows neither sessions nor streams. Its user moves the slots. Only add() and restore()
// allocate.
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
  // The turns of an account, which its calls share.
  struct Turns {
    uint64_t served = 0;  // the number of its last turn, or of the last turn before it joined
    int calls = 0;        // scratch
  };

  std::unique_ptr<Generation> generation;  // null for a Score call
  std::shared_ptr<ScoreCall> score;        // null for a generation
  std::string account;
  int slots = 1;
  int64_t bytes = 0;  // the memory that the call holds while it waits
  TimePoint until{};  // when it stops waiting

  // Set by the queue.
  std::shared_ptr<Turns> turns;
  std::optional<TimePoint> keeps_since;  // since when slots are kept for it; none: they are not
  uint64_t number = 0;                   // increases in the order of the queue
  int rank = 0;                          // scratch: its index among the calls of its account
  uint64_t served = 0;                   // turns->served before the call was taken

  // The last message to its client, and when it was sent.
  std::optional<Queued> told;
  TimePoint told_at{};
};

// Measures how fast slots are freed while calls wait, over about the last ten seconds of waiting.
class SlotRate {
 public:
  // `freed`: the number of slots that have been freed since the start. `waiting`: whether calls
  // wait from now on.
  void note(TimePoint now, int64_t freed, bool waiting);
  // The estimated time until `slots` more slots are freed. None if there is no useful estimate.
  std::optional<Duration> time_for(int64_t slots) const;

 private:
  bool waiting_ = false;
  TimePoint last_{};
  int64_t last_freed_ = 0;
  double seconds_ = 0, slots_ = 0;  // decaying sums
};

class SlotQueue {
 public:
  // Holds at most `calls` calls with at most `bytes` bytes together. If the queue is empty, a call
  // may have more bytes.
  SlotQueue(int64_t calls, int64_t bytes);

  bool empty() const { return calls_.empty(); }
  int size() const { return static_cast<int>(calls_.size()); }

  // False if the queue is full. `call` is then not changed.
  [[nodiscard]] bool add(QueuedCall&& call);

  // The call to admit now, if `free` slots are free. The caller must then take() it. Null if there
  // is none. A call for which `may` is false is passed over, and keeps its place.
  QueuedCall* next(TimePoint now, int free, const std::function<bool(const QueuedCall&)>& may);
  // Whether the last next() has found a call whose turn it is. The free slots are kept for it.
  bool keeps() const { return keeps_; }
  // Removes a call that is admitted from the queue. This is a turn of its account.
  QueuedCall take(QueuedCall& call);
  // Puts the call that was taken last, and could not be admitted, back to its place, and gives its
  // account the turn back.
  void restore(QueuedCall&& call);
  // Removes the calls for which `leaves` is true. `leaves` may move from the call.
  void remove_if(const std::function<bool(QueuedCall&)>& leaves);
  // The first call for which `is_it` is true. Null if there is none.
  QueuedCall* find(const std::function<bool(const QueuedCall&)>& is_it);

  // All calls in the order of their turns, as if each call found the slots that it needs. Valid
  // until the queue changes.
  std::span<QueuedCall* const> in_order();

 private:
  using Calls = std::list<QueuedCall>;
  QueuedCall* first(TimePoint now, int free, const std::function<bool(const QueuedCall&)>& may);
  void put_back(QueuedCall& call);
  void forget(const QueuedCall& call);

  const size_t most_calls_;
  const int64_t most_bytes_;
  Calls calls_;                                                      // by QueuedCall::number
  std::map<std::string, std::shared_ptr<QueuedCall::Turns>> turns_;  // by account
  uint64_t turn_ = 0, number_ = 0;                                   // the last numbers given
  int64_t bytes_ = 0;                                                // of calls_
  bool keeps_ = false;
  TimePoint rests_until_{};         // until then, no slots are kept for calls that do not fit
  std::vector<QueuedCall*> order_;  // reserved
};

}  // namespace runnel
