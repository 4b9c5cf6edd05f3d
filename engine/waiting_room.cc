#include "engine/waiting_room.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "engine/refusals.h"

namespace runnel {
namespace {

constexpr Duration kTellInterval = std::chrono::seconds(1);
constexpr int kMostPerTurn = 256;  // calls admitted in one turn: about a millisecond

bool is_cancelled(const QueuedCall& call) {
  return call.score ? call.score->cancelled.load(std::memory_order_acquire)
                    : call.generation->stream->cancelled();
}

const Caller& caller_of(const QueuedCall& call) {
  return call.score ? call.score->caller : call.generation->request.caller;
}

const std::optional<std::string>& session_of(const QueuedCall& call) {
  return call.score ? call.score->origin.session : call.generation->request.session;
}

// The bytes of the values of the first message, and of the room for their answers.
int64_t bytes_of(const ScoreCall& call) {
  const size_t bytes = call.feed.values.size() * sizeof(int32_t) +
                       call.scored.log_probs.capacity() * sizeof(float) +
                       call.scored.top.capacity() * sizeof(TopLogProb);
  return static_cast<int64_t>(bytes);
}

// The field of the request that determines the number of slots.
std::string_view asks_for_slots(const QueuedCall& call) {
  return call.score ? std::string_view() : fields::kSamples;
}

}  // namespace

WaitingRoom::WaitingRoom(Sessions& sessions, const EngineOptions& options, const TurnClock& time)
    : sessions_(sessions), time_(time), queue_(options.queue, options.queue_bytes) {}

// --- Room for newcomers ---

Status WaitingRoom::claim(int slots, std::string_view field) {
  const int kept_for = slots == 0 ? 0 : kept_for_.load(std::memory_order_acquire);
  return kept_for == 0 ? sessions_.claim(slots, field) : others_wait(kept_for, true);
}

Status WaitingRoom::take_room(int needed, const Caller& caller, bool has_waited,
                              std::string_view field) {
  if (needed > 0 && !has_waited && queue_.keeps()) return why_waiting(needed, caller, field, true);
  return sessions_.take_room(needed, caller, field);
}

Status WaitingRoom::take_room_at_once(int needed, const Caller& caller, std::string_view field) {
  if (needed > 0 && queue_.keeps()) return why_waiting(needed, caller, field, false);
  return sessions_.take_room(needed, caller, field);
}

Status WaitingRoom::check_kept() const {
  return queue_.keeps() ? others_wait(queue_.size(), false) : Status();
}

// Why a call that needs `needed` slots does not get them while calls wait.
Status WaitingRoom::why_waiting(int needed, const Caller& caller, std::string_view field,
                                bool may_wait) const {
  const Status status = sessions_.check_room(needed, caller, field);
  return status.ok() ? others_wait(queue_.size(), may_wait) : status;
}

// --- Into the queue ---

Status WaitingRoom::add(std::unique_ptr<Generation> generation) {
  const GenerateRequest& request = generation->request;
  const Duration at_most = request.max_queue_time;
  QueuedCall call;
  call.account = request.caller.account;
  call.slots = request.slots();
  call.bytes = bytes_of(request) + request.held_bytes;
  call.generation = std::move(generation);
  return add(std::move(call), at_most);
}

Status WaitingRoom::add(const std::shared_ptr<ScoreCall>& score) {
  QueuedCall call;
  call.account = score->caller.account;
  call.bytes = bytes_of(*score);
  call.score = score;
  return add(std::move(call), score->max_queue_time);
}

Status WaitingRoom::add(QueuedCall call, Duration at_most) {
  call.until = time_.now() + at_most;
  if (!queue_.add(std::move(call))) return queue_full();
  has_untold_ = true;
  return {};
}

bool WaitingRoom::take_over(std::unique_ptr<Generation>& generation) {
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
  earlier->until = time_.now() + request.max_queue_time;
  earlier->generation = std::move(generation);
  earlier->told.reset();
  has_untold_ = true;
  return true;
}

// --- Out of it ---

bool WaitingRoom::serve(const std::function<Status()>& refusal,
                        const std::function<bool(QueuedCall&)>& go_on) {
  bool served = false;
  if (!queue_.empty()) {
    const Status refused = refusal();
    served = end_if([&refused](const QueuedCall& call) -> std::optional<Status> {
      if (is_cancelled(call)) return Status(Code::kCancelled, "the call was cancelled");
      if (!refused.ok()) return refused;
      return std::nullopt;
    });
    std::vector<uint64_t> restored;  // these calls wait for the next turn
    const auto may = [&](const QueuedCall& call) {
      return std::ranges::count(restored, call.number) == 0 && may_go_on(call);
    };
    for (int i = 0;; ++i) {
      QueuedCall* const call = queue_.next(time_.now(), sessions_.unclaimed_slots(), may);
      if (call == nullptr || i == kMostPerTurn) break;  // the call waits for the next turn
      QueuedCall taken = queue_.take(*call);
      if (go_on(taken)) {
        served = true;
      } else {
        restored.push_back(taken.number);
        queue_.restore(std::move(taken));
      }
    }
    served |= end_if([this](const QueuedCall& call) -> std::optional<Status> {
      if (time_.now() < call.until) return std::nullopt;
      return why_waiting(call.slots, caller_of(call), asks_for_slots(call), true);
    });
    tell_places();
  }
  slot_rate_.note(time_.now(), sessions_.freed_slots(), !queue_.empty());
  kept_for_.store(queue_.keeps() ? queue_.size() : 0, std::memory_order_release);
  return served;
}

// Whether the account may hold the slots that the call needs, however many are free. The slot of
// the session that the call starts from does not count as free for it.
bool WaitingRoom::may_go_on(const QueuedCall& call) const {
  const Caller& caller = caller_of(call);
  const auto& session = session_of(call);
  const Session* const source = session ? sessions_.find({caller.name, *session}) : nullptr;
  if (source == nullptr || !source->spare) return sessions_.may_hold(call.slots, caller);
  const int own = source->account == caller.account ? 1 : 0;
  return sessions_.unclaimed_slots() > call.slots && sessions_.may_hold(call.slots + own, caller);
}

void WaitingRoom::end_all(const Status& status) {
  end_if([&](const QueuedCall&) { return status; });
}

// Ends the calls for which `why` gives a reason. Returns true if there were any.
bool WaitingRoom::end_if(const std::function<std::optional<Status>(const QueuedCall&)>& why) {
  const int before = queue_.size();
  queue_.remove_if([&](QueuedCall& call) {
    std::optional<Status> status = why(call);
    if (!status) return false;
    if (call.score) {
      call.score->finish(std::move(*status), time_.now());
    } else {
      call.generation->stream->end(std::move(*status));
    }
    return true;
  });
  return queue_.size() < before;
}

// Tells newcomers their places at once. The others hear when their place has changed, at most once
// a second.
void WaitingRoom::tell_places() {
  const TimePoint now = time_.now();
  const bool again = now >= next_tell_;
  if (!again && !has_untold_) return;
  if (again) next_tell_ = now + kTellInterval;
  has_untold_ = false;
  int64_t slots = -std::max(sessions_.unclaimed_slots(), 0);  // slots that must become free
  Queued queued;
  queued.place = 0;
  for (QueuedCall* const call : queue_.in_order()) {
    ++queued.place;
    const bool may = may_go_on(*call);  // otherwise its time is unknown, and others overtake it
    if (may) slots += call->slots;
    if (call->generation == nullptr) continue;
    if (call->told && now - call->told_at < kTellInterval) continue;
    queued.wait = may ? slot_rate_.time_for(slots) : std::nullopt;
    const bool is_news =
        !call->told || call->told->place != queued.place || (queued.wait && !call->told->wait);
    if (!is_news) continue;
    call->told = queued;
    call->told_at = now;
    call->generation->stream->queue(queued);
  }
}

}  // namespace runnel
