// How a session goes back (engine/rewinds.h): the state of a snapshot comes into it as states move,
// then the values after it are fed again as those of a Score call.
#include <utility>

#include "engine/scheduler.h"

namespace runnel {

void Scheduler::rewind_session(const SessionKey& key, int64_t position, const Caller& caller,
                               MoveDone done) {
  if (Status s = refusal(); !s.ok()) return done(s);
  const Result<Session*> found = sessions_.resolve(key);
  if (!found.ok()) return done(found.status());
  Session& session = **found;
  if (Status s = check_rewind(session, position); !s.ok()) return done(s);
  if (position == session.position) return feed_again(session, {}, caller, std::move(done));
  session.last_call.reset();  // the session goes on elsewhere: that call is not sent again
  WayBack back = sessions_.rewinds().go_back(session, position);
  session.position = back.position;
  session.pending = back.pending;
  if (!back.snapshot) {
    sessions_.reset(session);
    return feed_again(session, std::move(back.values), caller, std::move(done));
  }
  StateMove move;
  move.from_slot = back.snapshot;
  move.to.push_back(&session);
  start_move(std::move(move), [this, &session, values = std::move(back.values), caller,
                               done = std::move(done)](const auto& moved) mutable {
    if (!moved.ok()) return done(moved.status());  // the session has ended
    feed_again(session, std::move(values), caller, done);
  });
}

Status Scheduler::check_rewind(const Session& session, int64_t position) {
  const std::string name = "session '" + session.key.id + "'";
  if (position > session.position) {
    return {Code::kOutOfRange, name + " stands at position " + std::to_string(session.position) +
                                   ", and goes back to earlier ones only, not to " +
                                   std::to_string(position)};
  }
  const int64_t oldest = sessions_.rewinds().oldest(session);
  if (position >= oldest) return {};
  return {Code::kOutOfRange, name + " cannot go back to position " + std::to_string(position) +
                                 ": the oldest that it can go back to is " +
                                 std::to_string(oldest)};
}

// Has a resting session consume `values`, and tells where it stands then.
void Scheduler::feed_again(Session& session, std::vector<int32_t> values, const Caller& caller,
                           MoveDone done) {
  if (values.empty()) {
    sessions_.give_back(session, now_);
    return done(std::vector{describe(session, now_)});
  }
  const auto call =
      std::make_shared<ScoreCall>(caller, Origin{session.key.id, {}}, false, true, Duration(0));
  call->silent = true;
  call->session = &session;
  call->turns = turns_of(caller);
  call->admitted.store(true, std::memory_order_release);
  call->values = std::move(values);
  call->done = [this, &call = *call, &session, done = std::move(done)](const auto& fed) {
    if (!fed.ok()) return done(fed.status());
    end_score(call, {Code::kCancelled, "the session has been rewound"});
    done(std::vector{describe(session, now_)});
  };
  sessions_.apply(session, SessionEvent::kFeed);
  sessions_.set(session, {});
  scores_.push_back(call);
  begin_chunk(*call);
}

}  // namespace runnel
