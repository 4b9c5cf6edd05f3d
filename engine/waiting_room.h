// The calls that wait for slots: who gets a place in the queue, who is next when slots come free,
// and what a call hears while it waits. Nobody comes before those who wait, so the room also says
// whether a newcomer may lease slots.
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
  // All three outlive it.
  WaitingRoom(Sessions& sessions, const EngineOptions& options, const TurnClock& time);

  // --- From any thread ---

  // Claims slots for a call on its way to the scheduler. RESOURCE_EXHAUSTED when they are not free,
  // or are kept for calls that wait. Here and below, `field` is the one of the request that asks
  // for the slots, if any does.
  Status claim(int slots, std::string_view field = {});

  // --- The scheduler's thread ---

  int size() const { return queue_.size(); }

  // Counts the slots of a call that are to be leased next. Those that are kept are for calls that
  // have waited. RESOURCE_EXHAUSTED, INVALID_ARGUMENT.
  Status take_room(int needed, const Caller& caller, bool has_waited, std::string_view field = {});
  // The same for a call that cannot wait.
  Status take_room_at_once(int needed, const Caller& caller, std::string_view field);
  // RESOURCE_EXHAUSTED where free slots are kept for calls that wait.
  Status check_kept() const;

  // Gives a call a place. RESOURCE_EXHAUSTED when the queue is full.
  Status add(std::unique_ptr<Generation> generation);
  Status add(const std::shared_ptr<ScoreCall>& score);
  // A retry of a call that waits has its place from here on. True where the generation was taken.
  bool take_over(std::unique_ptr<Generation>& generation);

  // Once a turn: hands the calls that have their turn to `go_on`, ends those that wait no longer,
  // and tells the others their places. Where `refusal` is not OK, it ends all of them. True when a
  // call has left the queue.
  bool serve(const std::function<Status()>& refusal, const std::function<void(QueuedCall)>& go_on);
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
  std::atomic<int> kept_for_{0};  // calls that wait, while free slots are kept for them
};

}  // namespace runnel
