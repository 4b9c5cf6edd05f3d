// Reports a finished call: counts it in the metrics and writes its line in the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/caller.h"
#include "server/host/served_models.h"
#include "server/host/server_context.h"

namespace runnel {

// The facts of a call that its door knows before it reads the request.
struct CallStart {
  const char* rpc;  // its name in log and metrics: "Generate"
  std::string peer;
  Result<Caller> caller;      // or why the caller is refused
  std::string trace_id = {};  // empty: the client names none
  TimePoint came{};           // by ServerContext::clock
};

// How far the call got.
struct CallProgress {
  int64_t given = 0;               // values that the client sent
  int64_t sampled = 0;             // values that were sent to the client
  std::optional<Duration> queued;  // the wait for admission
  std::optional<Duration> first;   // from its arrival to its first value or log-probability
};

// Counts the call and writes its line, if memory allows. `model` is null if the call found no
// model. Called once, at the call's end.
void report(ServerContext& state, const CallStart& start, const ServedModel* model,
            const CallProgress& progress, const Status& status);

}  // namespace runnel
