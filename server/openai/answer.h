// Answers one or more prompts together, for the endpoints that sample text.
#pragma once

#include <memory>

#include "server/host/server_context.h"
#include "server/http/http_server.h"
#include "server/openai/answer_kind.h"

namespace runnel {

// Answers a request. Each of its prompts is a Generate call of method `rpc`, which must have static
// storage. If one fails, all end. The head of a stream is sent when each of the prompts that start
// at once has a state or waits for one, and at least one has been admitted. `state` must outlive
// the calls, which it counts.
void start_answer(ServerContext& state, const char* rpc, std::unique_ptr<AnswerKind> kind,
                  const HttpRequest& request, HttpReply reply);

}  // namespace runnel
