// The input of /v1/responses: what a conversation consists of there.
#pragma once

#include "base/json.h"
#include "server/http/fault.h"

namespace runnel {

// Makes messages of `input`, a text or a list of items, as read_messages() leaves them. A text is a
// user's message. Reasoning, a message of the assistant and calls that follow each other become one
// message. INVALID_ARGUMENT names the member.
Fault read_input(OrderedJson input, OrderedJson& messages);

// Makes tools of a chat of the list of tools. INVALID_ARGUMENT names the member.
Fault read_response_tools(OrderedJson tools, OrderedJson& made);

}  // namespace runnel
