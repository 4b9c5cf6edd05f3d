// Reads the fields that the endpoints of chat have in common.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "server/http/request_fields.h"
#include "server/openai/chat_request.h"

namespace runnel {

// Moves a member out of a body, and leaves null in its place. Null if there is no such member.
OrderedJson taken(OrderedJson& body, const char* key);

// Keeps a fault whose message begins with its field. Does nothing if the fault is OK.
void refuse(RequestFields& fields, const Fault& fault);

// A field that would change the answer, and advice about alternatives.
struct RefusedField {
  const char* key;
  const char* what;
};
void refuse_all(RequestFields& fields, std::span<const RefusedField> refused);

// Reads a field of which this server supports only one value. `shown`: the value in messages.
void read_only(RequestFields& fields, const char* key, const Json& value, const char* shown);

// Reads `parallel_tool_calls` and `tool_choice`. Returns whether the answer may have calls.
bool read_tool_choice(RequestFields& fields, ChatRequest& request);

// Reads the effort of reasoning, the text `key`, into the template variable reasoning_effort.
// `none` turns thinking off.
void read_effort(RequestFields& fields, const char* key, ChatRequest& request);

// Reads variables of the template from `given`, the value of chat_template_kwargs.
void read_variables(RequestFields& fields, const OrderedJson& given, ChatRequest& request);

}  // namespace runnel
