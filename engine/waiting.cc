// How calls wait for slots: who gets a place in the queue, who goes on when slots come free, and
// what those hear who wait.
#include <algorithm>
#include <utility>

#include "engine/refusals.h"
#include "engine/scheduler.h"

namespace runnel {
namespace {

constexpr Duration kTellInterval = std::chrono::seconds(1);
constexpr int kMostPerTurn = 256;  // calls that go on in one turn: about a millisecond

bool is_cancelled(const QueuedCall& call) {
  return call.score ? call.score->cancelled.load(std::memory_order_acquire)
                    : call.generation->stream->cancelled();
}

const Caller& caller_of(const QueuedCall& call) {
  return call.score ? call.score->caller : call.generation->request.caller;
}

}  // namespace

// --- Into the queue ---

Status Scheduler::enqueue(std::unique_ptr<Generation> generation) {
  const GenerateRequest& request = generation->request;
  const Duration at_most = request.max_queue_time;
  generation->turns.reset();  // until it runs
  QueuedCall call;
  call.account = request.caller.account;
  call.slots = request.slots();
  call.bytes = bytes_of(request) + request.held_bytes;
  call.generation = std::move(generation);
  return enqueue(std::move(call), at_most);
}

Status Scheduler::enqueue(const std::shared_ptr<ScoreCall>& score) {
  QueuedCall call;
  call.account = score->caller.account;
  call.bytes = static_cast<int64_t>(score->values.size() * sizeof(int32_t));
  call.score = score;
  return enqueue(std::move(call), score->max_queue_time);
}

Status Scheduler::enqueue(QueuedCall call, Duration at_most) {
  call.until = now_ + at_most;
  if (!queue_.add(std::move(call))) return queue_full();
  has_untold_ = true;
  return {};
}

// A retry of a call that waits has its place from here on. True where the generation was taken.
bool Scheduler::take_over_waiting(std::unique_ptr<Generation>& generation) {
  const GenerateRequest& request = generation->request;
  if (!request.makes_named()) return false;
  QueuedCall* const earlier = queue_.find([&](const QueuedCall& call) {
    if (call.generation == nullptr) return false;
    const GenerateRequest& other = call.generation->request;
    return other.makes_named() && other.request_id == request.request_id &&
           other.caller.name == request.caller.name;
  });
  if (earlier == nullptr) return false;
  if (earlier->generation->digest != generation->digest) {
    generation->stream->end(used_otherwise(request.request_id));
    return true;
  }
  earlier->generation->stream->end(made_again());
  earlier->until = now_ + request.max_queue_time;
  earlier->generation = std::move(generation);
  earlier->told.reset();
  has_untold_ = true;
  return true;
}

// --- Out of it ---

// Lets calls go on that have their turn, ends those that wait no longer, and tells the others their
// places. True when a call has left the queue.
bool Scheduler::serve_queue() {
  bool served = false;
  if (!queue_.empty()) {
    const Status refused = refusal();
    served = end_queued([&refused](const QueuedCall& call) -> std::optional<Status> {
      if (is_cancelled(call)) return Status(Code::kCancelled, "the call was cancelled");
      if (!refused.ok()) return refused;
      return std::nullopt;
    });
    const auto may = [this](const QueuedCall& call) { return may_go_on(call); };
    for (int i = 0;; ++i) {
      QueuedCall* const call = queue_.next(now_, sessions_.unclaimed_slots(), may);
      if (call == nullptr || i == kMostPerTurn) break;  // the next turn is its
      go_on(queue_.take(*call));
      served = true;
    }
    served |= end_queued([this](const QueuedCall& call) -> std::optional<Status> {
      if (now_ < call.until) return std::nullopt;
      return why_waiting(call.slots, caller_of(call));
    });
    tell_places();
  }
  slot_rate_.note(now_, sessions_.freed_slots(), !queue_.empty());
  kept_for_.store(queue_.keeps() ? queue_.size() : 0, std::memory_order_release);
  return served;
}

// Whether its account may hold the slots that it needs, whatever is free.
bool Scheduler::may_go_on(const QueuedCall& call) const {
  return sessions_.may_hold(call.slots, caller_of(call));
}

void Scheduler::go_on(QueuedCall call) {
  if (call.score) {
    begin(call.score, true);
    return;
  }
  call.generation->has_waited = true;
  begin(std::move(call.generation));
}

// Ends the calls for which there is a reason. True when there was one.
bool Scheduler::end_queued(const std::function<std::optional<Status>(const QueuedCall&)>& why) {
  const int before = queue_.size();
  queue_.remove_if([&](QueuedCall& call) {
    std::optional<Status> status = why(call);
    if (!status) return false;
    if (call.score) {
      end_score(*call.score, std::move(*status));
    } else {
      call.generation->stream->end(std::move(*status));
    }
    return true;
  });
  return queue_.size() < before;
}

// Why a call that needs so many slots does not have them while calls wait.
Status Scheduler::why_waiting(int needed, const Caller& caller) const {
  const Status status = sessions_.check_room(needed, caller);
  return status.ok() ? others_wait(queue_.size()) : status;
}

// Tells newcomers where they stand at once, and the others when their place has changed, at most
// once a second.
void Scheduler::tell_places() {
  const bool again = now_ >= next_tell_;
  if (!again && !has_untold_) return;
  if (again) next_tell_ = now_ + kTellInterval;
  has_untold_ = false;
  int64_t slots = -std::max(sessions_.unclaimed_slots(), 0);  // still to come free
  Queued queued;
  queued.place = 0;
  for (QueuedCall* const call : queue_.in_order()) {
    ++queued.place;
    const bool may = may_go_on(*call);  // else nobody knows when, and the others pass it by
    if (may) slots += call->slots;
    if (call->generation == nullptr) continue;
    if (call->told && now_ - call->told_at < kTellInterval) continue;
    queued.wait = may ? slot_rate_.time_for(slots) : std::nullopt;
    const bool is_news =
        !call->told || call->told->place != queued.place || (queued.wait && !call->told->wait);
    if (!is_news) continue;
    call->told = queued;
    call->told_at = now_;
    call->generation->stream->queue(queued);
  }
}

}  // namespace runnel
