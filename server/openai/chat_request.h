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
  // As ChatFormat takes them: every content is a text or parts of type text, arguments of calls are
  // objects.
  OrderedJson messages = OrderedJson::array();
  OrderedJson tools = nullptr;                    // null: none, or none may be called
  OrderedJson variables = OrderedJson::object();  // of the template
  // The field in which the request has its length.
  std::string_view length_field = "max_completion_tokens";
  bool may_call = true;    // the answer may call tools
  bool one_call = false;   // the answer ends with its first call of a tool
  bool continues = false;  // the last message, an assistant's
};

// The JSON object in such a body; its members keep their order. INVALID_ARGUMENT where it is none.
Result<OrderedJson> parse_chat_body(std::string_view body);

// Reads `body`. INVALID_ARGUMENT names the field, also where it asks for something that would
// change the result and is not done here. What the engine checks is left to it. `max_tokens` is how
// many values are sampled at most where the body does not say.
Fault read_chat(OrderedJson body, int64_t max_tokens, ChatRequest& request);

}  // namespace runnel
