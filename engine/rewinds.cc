#include "engine/rewinds.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace runnel {
namespace {

int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

// A launch may pass the position where a snapshot is due by up to its number of steps - 1.
int64_t snapshots_of(const EngineOptions& options, int steps) {
  if (options.rewind_values == 0) return 0;
  return ceil_of(options.rewind_values + steps - 1, options.rewind_every) + 1;
}

Rewinds::Rewinds(Model& model, const EngineOptions& options)
    : model_(model),
      window_(options.rewind_values),
      every_(options.rewind_every),
      snapshots_(snapshots_of(options, model.limits().steps)),
      sessions_(static_cast<int>(model.limits().slots / (1 + snapshots_))),
      room_(on() ? window_ + every_ + model.limits().steps : 0) {
  if (!on()) return;
  const auto sessions = static_cast<size_t>(sessions_);
  pasts_.resize(sessions);
  inputs_.resize(sessions * static_cast<size_t>(snapshots_));
  values_.resize(sessions * static_cast<size_t>(room_));
  due_.reserve(sessions);
}

int64_t Rewinds::bytes() const {
  const int64_t logged = std::ssize(values_) * static_cast<int64_t>(sizeof(int32_t));
  const int64_t noted = std::ssize(inputs_) * static_cast<int64_t>(sizeof(int64_t));
  // A session that is rewinding also holds the values of its way back.
  const int64_t way = sessions_ * (room_ - window_) * static_cast<int64_t>(sizeof(int32_t));
  return sessions_ * snapshots_ * model_.layout().fixed_bytes() + logged + noted + way;
}

bool Rewinds::has(const Session& session) const {
  return on() && !session.key.id.empty() && !session.stored;
}

SlotId Rewinds::slot_of(SlotId session, int64_t snapshot) const {
  return static_cast<SlotId>(sessions_ + session * snapshots_ + snapshot % snapshots_);
}

int64_t& Rewinds::inputs_of(SlotId session, int64_t snapshot) {
  return inputs_[session * snapshots_ + snapshot % snapshots_];
}

int64_t Rewinds::inputs_of(SlotId session, int64_t snapshot) const {
  return inputs_[session * snapshots_ + snapshot % snapshots_];
}

int32_t& Rewinds::value_at(SlotId session, int64_t position) {
  return values_[session * room_ + position % room_];
}

void Rewinds::begin(const Session& session, bool empty) {
  if (!has(session)) return;
  leave(session);
  Past& past = pasts_[session.slot];
  past = {};
  past.from_empty = empty;
  past.begun = session.position;
  past.first = session.consumed();
  if (session.pending != kNoValue) value_at(session.slot, past.first) = session.pending;
}

void Rewinds::note(const Session& session, std::span<const int32_t> values) {
  if (!has(session)) return;
  int64_t position = session.position - std::ssize(values);
  for (const int32_t value : values) value_at(session.slot, position++) = value;
  int64_t& first = pasts_[session.slot].first;
  first = std::max(first, session.position - room_);
}

// --- Snapshots ---

// A snapshot is due when the session has passed a multiple of `every_` since the last one. It is
// also due where the session's past begins, unless the sequence was empty there.
bool Rewinds::is_due(const Session& session) const {
  const Past& past = pasts_[session.slot];
  if (past.kept == 0 && !past.from_empty) return true;
  const int64_t last = past.kept == 0 ? 0 : inputs_of(session.slot, past.taken - 1);
  return session.consumed() / every_ > last / every_;
}

bool Rewinds::ready(const Session& session) {
  if (!has(session) || !is_due(session)) return true;
  Past& past = pasts_[session.slot];
  if (past.copied < 0) {
    past.copied = 0;
    past.kept = std::min(past.kept, snapshots_ - 1);  // the oldest snapshot makes room
    past.inputs = session.consumed();
    due_.push_back(session.slot);
  }
  copy_due();
  return past.copied < 0;
}

// Copies the snapshots that are due, oldest first, within the turn's budget of bytes. A snapshot
// has no caches: the session's own cache entries for earlier positions are never overwritten.
void Rewinds::copy_due() {
  const int64_t whole = model_.layout().fixed_bytes();
  while (left_ > 0 && !due_.empty()) {
    const SlotId slot = due_.front();
    Past& past = pasts_[slot];
    const int64_t bytes = std::min(left_, whole - past.copied);
    model_.copy_piece(slot, slot_of(slot, past.taken), past.copied, bytes);
    left_ -= bytes;
    past.copied += bytes;
    if (past.copied < whole) return;
    inputs_of(slot, past.taken) = past.inputs;
    ++past.taken;
    ++past.kept;
    past.copied = -1;
    due_.erase(due_.begin());
  }
}

int64_t Rewinds::most_inputs(const Session& session) const {
  if (!has(session)) return std::numeric_limits<int64_t>::max();
  return every_ - session.consumed() % every_;
}

void Rewinds::leave(const Session& session) {
  if (!has(session) || pasts_[session.slot].copied < 0) return;
  pasts_[session.slot].copied = -1;
  std::erase(due_, session.slot);
}

// --- Going back ---

// If the state has consumed values, the session also has a pending value, which counts in its
// position.
int64_t Rewinds::position_of(const Past& past, int64_t inputs) {
  return inputs == 0 ? past.begun : inputs + 1;
}

int64_t Rewinds::oldest(const Session& session) const {
  if (!has(session)) return session.position;
  const Past& past = pasts_[session.slot];
  int64_t reached = past.from_empty && past.first == 0 ? 0 : session.position;
  for (int64_t at = past.taken - past.kept; at < past.taken && reached > 0; ++at) {
    const int64_t inputs = inputs_of(session.slot, at);
    if (inputs >= past.first) reached = std::min(reached, position_of(past, inputs));
  }
  return std::max(reached, session.position - window_);
}

WayBack Rewinds::go_back(const Session& session, int64_t position) {
  check(position >= oldest(session) && position <= session.position, "a position within reach");
  const SlotId slot = session.slot;
  Past& past = pasts_[slot];
  while (past.kept > 0 && position_of(past, inputs_of(slot, past.taken - 1)) > position) {
    --past.taken;
    --past.kept;
  }
  WayBack back;
  if (past.kept > 0) {
    const int64_t inputs = inputs_of(slot, past.taken - 1);
    back = {.snapshot = slot_of(slot, past.taken - 1),
            .position = position_of(past, inputs),
            .pending = kNoValue,
            .values = {}};
    if (back.position > 0) back.pending = value_at(slot, inputs);
  }
  back.values.reserve(static_cast<size_t>(position - back.position));
  for (int64_t at = back.position; at < position; ++at) back.values.push_back(value_at(slot, at));
  return back;
}

}  // namespace runnel
