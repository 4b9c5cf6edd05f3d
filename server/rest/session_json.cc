#include "server/rest/session_json.h"

#include <chrono>

#include "engine/session.h"

namespace runnel {

OrderedJson session_json(const SessionInfo& session, const ServedModel& model) {
  const double idle = std::chrono::duration<double>(session.idle).count();
  return {{"id", session.key.id},
          {"object", "session"},
          {"model", model.name},
          {"position", session.position},
          {"state", session_phase_name(session.state)},
          {"state_bytes", model.engine->state_bytes()},
          {"idle_seconds", idle}};
}

}  // namespace runnel
