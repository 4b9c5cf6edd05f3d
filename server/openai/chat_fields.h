// The fields that the endpoints of chat have in common.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "server/http/request_fields.h"
#include "server/openai/chat_request.h"

namespace runnel {

// Moves a member out of a body. Null, which stays in its place, where there is none.
OrderedJson taken(OrderedJson& body, const char* key);

// Keeps a fault whose message begins with its field. OK is none.
void refuse(RequestFields& fields, const Fault& fault);

// A field that would change the answer, and what to send instead.
struct RefusedField {
  const char* key;
  const char* what;
};
void refuse_all(RequestFields& fields, std::span<const RefusedField> refused);

// A field with one value that this server can do, shown as `shown` in messages.
void read_only(RequestFields& fields, const char* key, const Json& value, const char* shown);

// `parallel_tool_calls` and `tool_choice`. Whether the answer may have calls.
bool read_tool_choice(RequestFields& fields, ChatRequest& request);

// The effort of reasoning, the text `key`. Templates that know it have the variable
// reasoning_effort; `none` turns thinking off.
void read_effort(RequestFields& fields, const char* key, ChatRequest& request);

// Variables of the template: the value of chat_template_kwargs, which has been taken.
void read_variables(RequestFields& fields, const OrderedJson& given, ChatRequest& request);

}  // namespace runnel
