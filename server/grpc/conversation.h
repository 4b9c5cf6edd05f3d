// Converts conversations of the wire to the prompts of calls.
#pragma once

#include "base/status.h"
#include "engine/request.h"
#include "models/template/chat_template.h"
#include "runnel/v1/inference.pb.h"
#include "server/host/server_context.h"

namespace runnel {

// A conversation in the form that templates accept. INVALID_ARGUMENT names the member.
Result<Conversation> conversation_of(const v1::Conversation& message);

// Renders the conversation of `message` as the prompt of `request`, which already has its other
// fields. It reserves memory while it works. NOT_FOUND if the model has no chat template;
// INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
Status set_conversation(const v1::GenerateRequest& message, const ServedModel& model,
                        ServerContext& state, GenerateRequest& request);

}  // namespace runnel
