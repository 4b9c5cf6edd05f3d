// A session as JSON, for answers over HTTP.
#pragma once

#include "base/json.h"
#include "engine/engine.h"
#include "server/host/served_models.h"

namespace runnel {

OrderedJson session_json(const SessionInfo& session, const ServedModel& model);

}  // namespace runnel
