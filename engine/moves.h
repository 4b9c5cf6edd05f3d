// Moves states (engine/state_move.h) for fork, export, import and rewind. A state is copied in
// pieces between steps, so that a large state does not delay the steps of other calls.
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
  // All arguments must outlive the object.
  Moves(Model& model, Sessions& sessions, WaitingRoom& waiting_room, Steps& steps,
        const TurnClock& time);

  // Each of these calls `done` once, also to refuse.

  // The ids of the children are distinct or empty.
  void fork_session(const SessionKey& parent, const std::vector<std::string>& children,
                    const Caller& caller, MoveDone done);
  // `image` has memory for one state.
  void export_session(const SessionKey& key, std::shared_ptr<StateImage> image, MoveDone done);
  // The same, but the session stays at rest. CANCELLED if a call begins on it, or it ends.
  void copy_at_rest(const SessionKey& key, std::shared_ptr<StateImage> image, MoveDone done);
  void import_session(const std::string& id, std::shared_ptr<StateImage> image,
                      const Caller& caller, MoveDone done);
  void add_state(const std::string& name, std::shared_ptr<StateImage> image, MoveDone done);
  void rewind_session(const SessionKey& key, int64_t position, const Caller& caller, MoveDone done);

  // To be called once a turn: copies as many bytes as a turn may. True if there was a move.
  bool move_states();
  // Ends all moves with `status`, and ends the sessions that they made.
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
