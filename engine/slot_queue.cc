#include "engine/slot_queue.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace runnel {
namespace {

constexpr Duration kKeepsEach = std::chrono::seconds(1);
constexpr double kMemory = 10;      // seconds: the time constant of the decay
constexpr double kFewest = 0.05;    // slots: one, decayed for three times kMemory
constexpr double kLongest = 86400;  // seconds: longer estimates are not worth telling

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void SlotRate::note(TimePoint now, int64_t freed, bool waiting) {
  if (waiting_) {
    const double passed = seconds_of(now - last_);
    const double stays = std::exp(-passed / kMemory);
    seconds_ = seconds_ * stays + passed;
    slots_ = slots_ * stays + static_cast<double>(freed - last_freed_);
  }
  waiting_ = waiting;
  last_ = now;
  last_freed_ = freed;
}

std::optional<Duration> SlotRate::time_for(int64_t slots) const {
  if (slots_ < kFewest || seconds_ <= 0) return std::nullopt;
  const double seconds = static_cast<double>(std::max<int64_t>(slots, 0)) * seconds_ / slots_;
  if (seconds > kLongest) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

SlotQueue::SlotQueue(int64_t calls, int64_t bytes)
    : most_calls_(static_cast<size_t>(calls)), most_bytes_(bytes) {
  order_.reserve(most_calls_);
}

bool SlotQueue::add(QueuedCall&& call) {
  if (calls_.size() >= most_calls_) return false;
  if (!calls_.empty() && call.bytes > most_bytes_ - bytes_) return false;
  auto& turns = turns_[call.account];
  if (turns == nullptr) turns = std::make_shared<QueuedCall::Turns>(turn_);
  call.turns = turns;
  call.number = ++number_;
  bytes_ += call.bytes;
  calls_.push_back(std::move(call));
  return true;
}

QueuedCall* SlotQueue::next(TimePoint now, int free,
                            const std::function<bool(const QueuedCall&)>& may) {
  keeps_ = false;
  while (QueuedCall* const call = first(now, free, may)) {
    keeps_ = true;
    if (call->slots <= free) return call;
    if (free <= 0) return nullptr;
    if (!call->keeps_since) call->keeps_since = now;
    const Duration keeps = call->slots * kKeepsEach;
    if (now - *call->keeps_since < keeps) return nullptr;
    put_back(*call);
    rests_until_ = now + keeps;
    keeps_ = false;
  }
  return nullptr;
}

// The call whose turn it is.
QueuedCall* SlotQueue::first(TimePoint now, int free,
                             const std::function<bool(const QueuedCall&)>& may) {
  const int most = now < rests_until_ ? std::max(free, 1) : std::numeric_limits<int>::max();
  QueuedCall* best = nullptr;
  for (QueuedCall& call : calls_) {
    if (call.slots > most) continue;
    if (best != nullptr && call.turns->served >= best->turns->served) continue;
    if (may(call)) best = &call;
  }
  return best;
}

// Puts a call at the end of the round, and after the other calls of its caller.
void SlotQueue::put_back(QueuedCall& call) {
  call.keeps_since.reset();
  call.turns->served = ++turn_;
  call.number = ++number_;
  const auto here =
      std::ranges::find_if(calls_, [&](const QueuedCall& other) { return &other == &call; });
  calls_.splice(calls_.end(), calls_, here);
}

void SlotQueue::forget(const QueuedCall& call) {
  bytes_ -= call.bytes;
  const auto turns = turns_.find(call.account);
  check(turns != turns_.end(), "the caller of a call that waits has turns");
  if (turns->second.use_count() == 2) turns_.erase(turns);  // the map's and the call's
}

QueuedCall SlotQueue::take(QueuedCall& call) {
  call.served = std::exchange(call.turns->served, ++turn_);
  const auto here =
      std::ranges::find_if(calls_, [&](const QueuedCall& other) { return &other == &call; });
  check(here != calls_.end(), "a call that is taken waits");
  forget(call);
  QueuedCall taken = std::move(call);
  calls_.erase(here);
  keeps_ = keeps_ && !calls_.empty();
  return taken;
}

void SlotQueue::restore(QueuedCall&& call) {
  turns_.try_emplace(call.account, call.turns);  // forget() erases them with the last call
  call.turns->served = call.served;
  bytes_ += call.bytes;
  const auto next =
      std::ranges::find_if(calls_, [&](const auto& other) { return other.number > call.number; });
  calls_.insert(next, std::move(call));
}

void SlotQueue::remove_if(const std::function<bool(QueuedCall&)>& leaves) {
  for (auto call = calls_.begin(); call != calls_.end();) {
    if (!leaves(*call)) {
      ++call;
      continue;
    }
    forget(*call);
    call = calls_.erase(call);
  }
  keeps_ = keeps_ && !calls_.empty();
}

QueuedCall* SlotQueue::find(const std::function<bool(const QueuedCall&)>& is_it) {
  const auto found = std::ranges::find_if(calls_, is_it);
  return found == calls_.end() ? nullptr : &*found;
}

std::span<QueuedCall* const> SlotQueue::in_order() {
  order_.clear();
  for (auto& [account, turns] : turns_) turns->calls = 0;
  for (QueuedCall& call : calls_) {
    call.rank = call.turns->calls++;
    order_.push_back(&call);
  }
  const auto key = [](const QueuedCall* call) {
    return std::tuple(call->rank, call->turns->served, call->number);
  };
  std::sort(order_.begin(), order_.end(),
            [&](const QueuedCall* a, const QueuedCall* b) { return key(a) < key(b); });
  return order_;
}

}  // namespace runnel
