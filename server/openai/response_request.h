// The body of POST /v1/responses, as plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/json.h"
#include "server/http/fault.h"
#include "server/openai/chat_request.h"

namespace runnel {

struct ResponseRequest {
  ChatRequest chat;
  // The conversation before the answer, without the instructions, as a JSON list. It is kept so
  // that later requests can continue the answer. Empty: they cannot.
  std::string kept = {};
  OrderedJson echo = OrderedJson::object();  // members of the answer that repeat the request
};

// Appends the messages of an earlier response, and its answer, by its id.
using Recall = std::function<Fault(const std::string& id, OrderedJson& messages)>;

// Reads `body`, as read_chat() does. `recall` finds the response that it continues.
Fault read_response(OrderedJson body, int64_t max_tokens, const Recall& recall,
                    ResponseRequest& request);

}  // namespace runnel
