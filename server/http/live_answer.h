// A whole answer that its client is receiving.
#pragma once

#include <memory>

#include "server/host/server_context.h"

namespace runnel {

// Counts as a live call, and keeps `held`, as long as the result exists. So the memory of an answer
// stays counted, and a drain waits for the answer. For HttpReply::send(). `state` must outlive it.
std::shared_ptr<const void> live_answer(ServerContext& state, std::shared_ptr<const void> held);

}  // namespace runnel
