// How states move: fork, export and import (engine/state_move.h).
#include <algorithm>
#include <utility>

#include "engine/scheduler.h"

namespace runnel {
namespace {

constexpr int64_t kBytesPerTurn = 1 << 20;  // about a tenth of a millisecond

}  // namespace

// --- Commands ---

void Scheduler::fork_session(const SessionKey& parent, const std::vector<std::string>& children,
                             const Caller& caller, MoveDone done) {
  if (Status s = refusal(); !s.ok()) return done(s);
  const Result<Session*> source = sessions_.resolve(parent);
  if (!source.ok()) return done(source.status());
  StateMove move;
  move.from = *source;
  if (Status s = open_targets(children, caller, move); !s.ok()) return done(s);
  for (Session* child : move.to) {
    sessions_.stand(*child, move.from->position, move.from->pending);
  }
  start_move(std::move(move), std::move(done));
}

void Scheduler::export_session(const SessionKey& key, std::shared_ptr<StateImage> image,
                               MoveDone done) {
  // Nothing is changed or made: a server that drains lets sessions go.
  if (Status s = failure(); !s.ok()) return done(s);
  const Result<Session*> source = sessions_.resolve(key);
  if (!source.ok()) return done(source.status());
  StateMove move;
  move.from = *source;
  move.image = std::move(image);
  move.image->position = move.from->position;
  move.image->pending = move.from->pending;
  start_move(std::move(move), std::move(done));
}

void Scheduler::import_session(const std::string& id, std::shared_ptr<StateImage> image,
                               const Caller& caller, MoveDone done) {
  if (Status s = refusal(); !s.ok()) return done(s);
  StateMove move;
  if (Status s = open_targets({id}, caller, move); !s.ok()) return done(s);
  start_import(std::move(image), std::move(move), std::move(done));
}

void Scheduler::add_state(const std::string& name, std::shared_ptr<StateImage> image,
                          MoveDone done) {
  if (Status s = refusal(); !s.ok()) return done(s);
  const Result<Session*> state = sessions_.open_state(name);
  if (!state.ok()) return done(state.status());
  StateMove move;
  move.to.push_back(*state);
  start_import(std::move(image), std::move(move), std::move(done));
}

// Into the one target of `move`.
void Scheduler::start_import(std::shared_ptr<StateImage> image, StateMove move, MoveDone done) {
  sessions_.stand(*move.to[0], image->position, image->pending);
  move.image = std::move(image);
  start_move(std::move(move), std::move(done));
}

// Opens a session of each name. Not OK: nothing has changed.
Status Scheduler::open_targets(const std::vector<std::string>& ids, const Caller& caller,
                               StateMove& move) {
  for (const std::string& id : ids) {
    if (!id.empty() && sessions_.find({caller.name, id}) != nullptr) {
      return {Code::kAlreadyExists, "session '" + id + "' exists already"};
    }
  }
  const int count = static_cast<int>(ids.size());
  if (Status s = take_room(count, caller, false); !s.ok()) return s;
  for (const std::string& id : ids) move.to.push_back(&sessions_.open({caller.name, id}, caller));
  return {};
}

void Scheduler::start_move(StateMove move, MoveDone done) {
  move.done = std::move(done);
  if (move.from != nullptr) {
    move.from_slot = move.from->slot;
    sessions_.apply(*move.from, SessionEvent::kMove);
  }
  for (Session* session : move.to) sessions_.apply(*session, SessionEvent::kMove);
  moves_.push_back(std::move(move));
}

// --- Each turn ---

// Moves as much as one turn may; those that are not done take turns. True when there was something
// to move.
bool Scheduler::move_states() {
  const bool some = !moves_.empty();
  int64_t left = kBytesPerTurn;
  while (left > 0 && !moves_.empty()) {
    left -= move_piece(moves_.front(), left);
    if (moves_.front().moved == model_.layout().state_bytes) {
      StateMove move = std::move(moves_.front());
      moves_.pop_front();
      finish_move(move);
    } else {
      moves_.splice(moves_.end(), moves_, moves_.begin());
    }
  }
  return some;
}

// Moves a piece that costs at most `most` bytes of copies, or one byte to each target; returns its
// cost.
int64_t Scheduler::move_piece(StateMove& move, int64_t most) {
  const int64_t copies = std::max<int64_t>(1, std::ssize(move.to));
  const int64_t left = model_.layout().state_bytes - move.moved;
  const int64_t bytes = std::min(left, std::max<int64_t>(1, most / copies));
  const auto piece = [&] {
    return std::span(move.image->bytes).subspan(move.moved, static_cast<size_t>(bytes));
  };
  for (const Session* session : move.to) {
    if (move.from_slot) {
      model_.copy_piece(*move.from_slot, session->slot, move.moved, bytes);
    } else {
      model_.write(session->slot, move.moved, piece());
    }
  }
  if (move.to.empty()) model_.read(*move.from_slot, move.moved, piece());
  move.moved += bytes;
  return bytes * copies;
}

void Scheduler::finish_move(StateMove& move) {
  std::vector<SessionInfo> made;
  if (move.from != nullptr) sessions_.give_back(*move.from, now_);
  for (Session* session : move.to) {
    sessions_.set(*session, {});
    sessions_.give_back(*session, now_);
    made.push_back(describe(*session, now_));
  }
  move.done(std::move(made));
}

void Scheduler::end_moves(const Status& status) {
  for (StateMove& move : std::exchange(moves_, {})) {
    if (move.from != nullptr) sessions_.give_back(*move.from, now_);
    for (Session* session : move.to) sessions_.forget(*session);
    move.done(status);
  }
}

}  // namespace runnel
