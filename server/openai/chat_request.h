// The body of POST /v1/chat/completions, as plain data.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "server/http/fault.h"
#include "server/openai/answer_request.h"

namespace runnel {

struct ChatRequest {
  AnswerRequest answer;
  // In the form that ChatFormat needs: every content is a text or parts of type text, and arguments
  // of calls are objects.
  OrderedJson messages = OrderedJson::array();
  OrderedJson tools = nullptr;                    // null: no tools, or none may be called
  OrderedJson variables = OrderedJson::object();  // of the template
  // The field of the request that limits the length of the answer.
  std::string_view length_field = "max_completion_tokens";
  bool may_call = true;    // the answer may call tools
  bool one_call = false;   // the answer ends with its first call of a tool
  bool continues = false;  // the answer continues the last message, which is an assistant's
};

// The JSON object in a body, with its members in order. INVALID_ARGUMENT if it is not an object.
Result<OrderedJson> parse_chat_body(std::string_view body);

// Reads `body`. INVALID_ARGUMENT names the field: it is wrong, or it asks for something that would
// change the result and that this server does not support. The engine makes its own checks later.
// `max_tokens`: the maximum number of values to sample if the body sets none.
Fault read_chat(OrderedJson body, int64_t max_tokens, ChatRequest& request);

}  // namespace runnel
