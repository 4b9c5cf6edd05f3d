// What is told of a call once it has ended: what the metrics count, and its line in the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/caller.h"
#include "server/served_models.h"
#include "server/server_state.h"

namespace runnel {

// What a door knows of a call before it has read any of it.
struct CallOrigin {
  const char* rpc;  // as log and metrics name it: "Generate"
  std::string peer;
  Result<Caller> caller;      // or why they are not served
  std::string trace_id = {};  // empty: the client names none
  TimePoint came = std::chrono::steady_clock::now();
};

// How far it came.
struct CallProgress {
  int64_t given = 0;               // values that the client sent
  int64_t sampled = 0;             // values that the client was sent
  std::optional<Duration> queued;  // for which it waited to be admitted
  std::optional<Duration> first;   // from its arrival to its first value or log-probability
};

// Counts the call and writes its line, if memory allows. `model` is null where it came to none.
// Called once, at the call's end.
void report(ServerState& state, const CallOrigin& origin, const ServedModel* model,
            const CallProgress& progress, const Status& status);

}  // namespace runnel
