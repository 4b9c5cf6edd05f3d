#include "engine/moves.h"

#include <algorithm>
#include <utility>

#include "base/fields.h"
#include "engine/refusals.h"
#include "engine/validate.h"

namespace runnel {
namespace {

constexpr int64_t kBytesPerTurn = 1 << 20;  // about a tenth of a millisecond

}  // namespace

Moves::Moves(Model& model, Sessions& sessions, WaitingRoom& waiting_room, Steps& steps,
             const TurnClock& time)
    : model_(model), sessions_(sessions), waiting_room_(waiting_room), steps_(steps), time_(time) {}

// --- Commands ---

void Moves::fork_session(const SessionKey& parent, const std::vector<std::string>& children,
                         const Caller& caller, MoveDone done) {
  const Result<Session*> source = sessions_.resolve(parent, fields::kId);
  if (!source.ok()) return done(source.status());
  const HeldSource held(sessions_, *source);
  StateMove move;
  move.from = *source;
  move.bytes = model_.layout().live_bytes(move.from->consumed());
  if (Status s = open_targets(children, fork_field(children), caller, move); !s.ok())
    return done(s);
  for (Session* child : move.to) {
    sessions_.stand(*child, move.from->position, move.from->pending);
  }
  start(std::move(move), std::move(done));
}

void Moves::export_session(const SessionKey& key, std::shared_ptr<StateImage> image,
                           MoveDone done) {
  const Result<Session*> source = sessions_.resolve(key, fields::kId);
  if (!source.ok()) return done(source.status());
  StateMove move;
  move.from = *source;
  move.bytes = model_.layout().live_bytes(move.from->consumed());
  move.image = std::move(image);
  move.image->position = move.from->position;
  move.image->pending = move.from->pending;
  start(std::move(move), std::move(done));
}

void Moves::copy_at_rest(const SessionKey& key, std::shared_ptr<StateImage> image, MoveDone done) {
  const Result<Session*> source = sessions_.resolve(key, fields::kId);
  if (!source.ok()) return done(source.status());
  const Session& session = **source;
  StateMove move;
  move.from_slot = session.slot;
  move.rested = {key, session.used};
  move.bytes = model_.layout().live_bytes(session.consumed());
  move.image = std::move(image);
  move.image->position = session.position;
  move.image->pending = session.pending;
  start(std::move(move), std::move(done));
}

void Moves::import_session(const std::string& id, std::shared_ptr<StateImage> image,
                           const Caller& caller, MoveDone done) {
  StateMove move;
  if (Status s = open_targets({id}, fields::kId, caller, move); !s.ok()) return done(s);
  start_import(std::move(image), std::move(move), std::move(done));
}

void Moves::add_state(const std::string& name, std::shared_ptr<StateImage> image, MoveDone done) {
  const Result<Session*> state = sessions_.open_state(name);
  if (!state.ok()) return done(state.status());
  StateMove move;
  move.to.push_back(*state);
  start_import(std::move(image), std::move(move), std::move(done));
}

// Imports into the only target of `move`.
void Moves::start_import(std::shared_ptr<StateImage> image, StateMove move, MoveDone done) {
  sessions_.stand(*move.to[0], image->position, image->pending);
  move.bytes = model_.layout().live_bytes(move.to[0]->consumed());
  move.image = std::move(image);
  start(std::move(move), std::move(done));
}

// Opens a session for each of the names in `field` of the request. If the result is not OK, nothing
// has changed.
Status Moves::open_targets(const std::vector<std::string>& ids, std::string_view field,
                           const Caller& caller, StateMove& move) {
  for (const std::string& id : ids) {
    if (!id.empty() && sessions_.find({caller.name, id}) != nullptr) {
      return session_exists(id, field);
    }
  }
  const int count = static_cast<int>(ids.size());
  if (Status s = waiting_room_.take_room_at_once(count, caller, field); !s.ok()) return s;
  for (const std::string& id : ids) move.to.push_back(&sessions_.open({caller.name, id}, caller));
  return {};
}

void Moves::start(StateMove move, MoveDone done) {
  move.done = std::move(done);
  if (move.from != nullptr) {
    move.from_slot = move.from->slot;
    sessions_.apply(*move.from, SessionEvent::kMove);
  }
  for (Session* session : move.to) sessions_.apply(*session, SessionEvent::kMove);
  moves_.push_back(std::move(move));
}

// Rewinds (engine/rewinds.h): the state of a snapshot moves into the session, which then consumes
// the values after it again.
void Moves::rewind_session(const SessionKey& key, int64_t position, const Caller& caller,
                           MoveDone done) {
  const Result<Session*> found = sessions_.resolve(key, fields::kId);
  if (!found.ok()) return done(found.status());
  Session& session = **found;
  if (Status s = check_rewind(session, position); !s.ok()) return done(s);
  if (position == session.position) return feed_again(session, {}, caller, std::move(done));
  session.last_call.reset();  // the position changes, so that call can no longer be resent
  WayBack back = sessions_.rewinds().go_back(session, position);
  session.position = back.position;
  session.pending = back.pending;
  if (!back.snapshot) {
    sessions_.reset(session);
    return feed_again(session, std::move(back.values), caller, std::move(done));
  }
  StateMove move;
  move.from_slot = back.snapshot;
  move.bytes = model_.layout().fixed_bytes();
  move.to.push_back(&session);
  start(std::move(move), [this, &session, values = std::move(back.values), caller,
                          done = std::move(done)](const auto& moved) mutable {
    if (!moved.ok()) return done(moved.status());  // the session has ended
    feed_again(session, std::move(values), caller, done);
  });
}

Status Moves::check_rewind(const Session& session, int64_t position) const {
  const std::string name = "session '" + session.key.id + "'";
  const int64_t oldest = sessions_.rewinds().oldest(session);
  std::string message;
  if (position > session.position) {
    message = name + " is at position " + std::to_string(session.position) +
              " and can only go back to an earlier one, not to " + std::to_string(position);
  } else if (position < oldest) {
    message = name + " cannot go back to position " + std::to_string(position) +
              ": the oldest that it can go back to is " + std::to_string(oldest);
  } else {
    return {};
  }
  Status status(Code::kOutOfRange, std::move(message));
  return status.at_field(fields::kPosition);
}

// Makes a resting session consume `values`, and then reports its position.
void Moves::feed_again(Session& session, std::vector<int32_t> values, const Caller& caller,
                       MoveDone done) {
  if (values.empty()) {
    sessions_.give_back(session, time_.now());
    return done(std::vector{describe(session, time_.now())});
  }
  steps_.feed_again(session, std::move(values), caller,
                    [this, &session, done = std::move(done)](const Status& status) {
                      if (!status.ok()) return done(status);  // the session has ended
                      done(std::vector{describe(session, time_.now())});
                    });
}

// --- Each turn ---

// Unfinished moves take turns.
bool Moves::move_states() {
  const bool some = !moves_.empty();
  int64_t left = kBytesPerTurn;
  while (left > 0 && !moves_.empty()) {
    if (!may_go_on(moves_.front())) {
      const MoveDone done = std::move(moves_.front().done);
      moves_.pop_front();
      done(Status(Code::kCancelled, "the session is in use"));
      continue;
    }
    left -= move_piece(moves_.front(), left);
    if (moves_.front().moved == moves_.front().bytes) {
      StateMove move = std::move(moves_.front());
      moves_.pop_front();
      finish(move);
    } else {
      moves_.splice(moves_.end(), moves_, moves_.begin());
    }
  }
  return some;
}

// Whether the session of a copy is still as it was when the copy began. The sequence may get a
// value without an event of the session, so the position is compared, too.
bool Moves::may_go_on(const StateMove& move) {
  if (!move.rested) return true;
  const Session* const session = sessions_.find(move.rested->key);
  return session != nullptr && session->resting() && session->used == move.rested->used &&
         session->position == move.image->position;
}

// Moves a piece whose copies have at most `most` bytes in total, or one byte per target. Returns
// the bytes copied.
int64_t Moves::move_piece(StateMove& move, int64_t most) {
  const int64_t copies = std::max<int64_t>(1, std::ssize(move.to));
  const int64_t left = move.bytes - move.moved;
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

void Moves::finish(StateMove& move) {
  std::vector<SessionInfo> made;
  if (move.from != nullptr) sessions_.give_back(*move.from, time_.now());
  for (Session* session : move.to) {
    sessions_.set(*session, {});
    sessions_.give_back(*session, time_.now());
    made.push_back(describe(*session, time_.now()));
  }
  move.done(std::move(made));
}

void Moves::end_all(const Status& status) {
  for (StateMove& move : std::exchange(moves_, {})) {
    if (move.from != nullptr) sessions_.give_back(*move.from, time_.now());
    for (Session* session : move.to) sessions_.forget(*session);
    move.done(status);
  }
}

}  // namespace runnel
