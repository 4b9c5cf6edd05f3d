// How states move (engine/state_move.h): fork, export, import and rewind. A state goes piece by
// piece between steps, so that a large one does not hold up the steps of others.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sessions.h"
#include "engine/state_move.h"
#include "engine/steps.h"
#include "engine/turn_clock.h"
#include "engine/waiting_room.h"
#include "models/model.h"

namespace runnel {

class Moves {
 public:
  // All of them outlive it.
  Moves(Model& model, Sessions& sessions, WaitingRoom& waiting_room, Steps& steps,
        const TurnClock& time);

  // Each calls `done` once, also with a refusal.
  // Children have distinct ids, or empty ones.
  void fork_session(const SessionKey& parent, const std::vector<std::string>& children,
                    const Caller& caller, MoveDone done);
  // `image` has the bytes of one state.
  void export_session(const SessionKey& key, std::shared_ptr<StateImage> image, MoveDone done);
  // The same of a session that stays at rest. CANCELLED if a call begins on it, or it ends.
  void copy_at_rest(const SessionKey& key, std::shared_ptr<StateImage> image, MoveDone done);
  void import_session(const std::string& id, std::shared_ptr<StateImage> image,
                      const Caller& caller, MoveDone done);
  void add_state(const std::string& name, std::shared_ptr<StateImage> image, MoveDone done);
  void rewind_session(const SessionKey& key, int64_t position, const Caller& caller, MoveDone done);

  // Once a turn: moves as much as one turn may. True when there was something to move.
  bool move_states();
  // Ends all moves with `status`, and the sessions that they made.
  void end_all(const Status& status);

 private:
  Status open_targets(const std::vector<std::string>& ids, std::string_view field,
                      const Caller& caller, StateMove& move);
  void start_import(std::shared_ptr<StateImage> image, StateMove move, MoveDone done);
  void start(StateMove move, MoveDone done);
  bool may_go_on(const StateMove& move);
  int64_t move_piece(StateMove& move, int64_t most);
  void finish(StateMove& move);
  Status check_rewind(const Session& session, int64_t position) const;
  void feed_again(Session& session, std::vector<int32_t> values, const Caller& caller,
                  MoveDone done);

  Model& model_;
  Sessions& sessions_;
  WaitingRoom& waiting_room_;
  Steps& steps_;
  const TurnClock& time_;
  std::list<StateMove> moves_;  // the next one first
};

}  // namespace runnel
