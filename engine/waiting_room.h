// Manages the calls that wait for slots: puts calls into the queue, hands over the next call when
// slots are freed, and tells calls their places. A new call must not overtake waiting calls, so
// this class also decides whether a new call may lease slots.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "engine/options.h"
#include "engine/sessions.h"
#include "engine/slot_queue.h"
#include "engine/turn_clock.h"

namespace runnel {

class WaitingRoom {
 public:
  // All arguments must outlive the object.
  WaitingRoom(Sessions& sessions, const EngineOptions& options, const TurnClock& time);

  // --- From any thread ---

  // Claims slots for a call on its way to the scheduler. RESOURCE_EXHAUSTED if too few slots are
  // free, or the free slots are kept for calls that wait. Here and below, `field` is the field of
  // the request that asks for the slots, or empty.
  Status claim(int slots, std::string_view field = {});

  // --- The scheduler's thread ---

  int size() const { return queue_.size(); }

  // Counts `needed` slots against the account's quota, as Sessions::take_room(). Only calls that
  // have waited may use the kept slots. RESOURCE_EXHAUSTED, INVALID_ARGUMENT.
  Status take_room(int needed, const Caller& caller, bool has_waited, std::string_view field = {});
  // The same for a call that cannot wait.
  Status take_room_at_once(int needed, const Caller& caller, std::string_view field);
  // RESOURCE_EXHAUSTED if free slots are kept for calls that wait.
  Status check_kept() const;

  // Appends a call to the queue. RESOURCE_EXHAUSTED if the queue is full.
  Status add(std::unique_ptr<Generation> generation);
  Status add(const std::shared_ptr<ScoreCall>& score);
  // If the generation is a retry of a call that waits, it replaces this call, or is refused if the
  // two requests differ. True if it is such a retry: the generation must not be used any more.
  bool take_over(std::unique_ptr<Generation>& generation);

  // To be called once a turn. Hands each call whose turn has come to `go_on`, ends the calls whose
  // time to wait is over, and tells the other calls their places. If `go_on` returns false, the
  // call keeps its place. If `refusal` is not OK, it ends all calls with this status. True if a
  // call has left the queue.
  bool serve(const std::function<Status()>& refusal, const std::function<bool(QueuedCall&)>& go_on);
  void end_all(const Status& status);

 private:
  Status add(QueuedCall call, Duration at_most);
  bool may_go_on(const QueuedCall& call) const;
  bool end_if(const std::function<std::optional<Status>(const QueuedCall&)>& why);
  Status why_waiting(int needed, const Caller& caller, std::string_view field, bool may_wait) const;
  void tell_places();

  Sessions& sessions_;
  const TurnClock& time_;
  SlotQueue queue_;
  SlotRate slot_rate_;
  bool has_untold_ = false;  // a call in queue_ has not been told its place
  TimePoint next_tell_{};
  std::atomic<int> kept_for_{0};  // the number of waiting calls, if free slots are kept; else 0
};

}  // namespace runnel
