// Reads the input of /v1/responses, a list of items, as a conversation.
#pragma once

#include "base/json.h"
#include "server/http/fault.h"

namespace runnel {

// Converts `input`, a text or a list of items, to messages in the form of read_messages(). A text
// becomes a user's message. Adjacent reasoning, messages of the assistant and calls become one
// message. INVALID_ARGUMENT names the member.
Fault read_input(OrderedJson input, OrderedJson& messages);

// Converts the list of tools to the tools of a chat. INVALID_ARGUMENT names the member.
Fault read_response_tools(OrderedJson tools, OrderedJson& made);

}  // namespace runnel
