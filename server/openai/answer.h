// Prompts that are answered together: the machinery of /v1/completions and /v1/chat/completions.
#pragma once

#include <memory>

#include "server/host/server_context.h"
#include "server/http/http_server.h"
#include "server/openai/answer_kind.h"

namespace runnel {

// Answers the request with what its prompts come to, each a Generate call of method `rpc`, which is
// of static storage. If one fails, all end. The head of a stream is sent once all prompts that
// start at once have been admitted. `state` outlives the calls, which it counts.
void start_answer(ServerContext& state, const char* rpc, std::unique_ptr<AnswerKind> kind,
                  const HttpRequest& request, HttpReply reply);

}  // namespace runnel
