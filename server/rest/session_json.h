// A session, as the answers of HTTP have it.
#pragma once

#include "base/json.h"
#include "engine/engine.h"
#include "server/host/served_models.h"

namespace runnel {

OrderedJson session_json(const SessionInfo& session, const ServedModel& model);

}  // namespace runnel
