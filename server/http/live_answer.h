// A whole answer that its client is taking.
#pragma once

#include <memory>

#include "server/host/server_context.h"

namespace runnel {

// Counts as a live call, and keeps `held`, as long as it lives: what an answer takes stays counted,
// and a drain waits for it. For HttpReply::send(). `state` outlives it.
std::shared_ptr<const void> live_answer(ServerContext& state, std::shared_ptr<const void> held);

}  // namespace runnel
