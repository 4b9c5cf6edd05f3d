// The body of POST /v1/completions, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "server/http/fault.h"
#include "server/openai/answer_request.h"

namespace runnel {

inline constexpr int kMaxPrompts = 64;  // of one request

using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  AnswerRequest answer;                   // without the prompts
  std::vector<CompletionPrompt> prompts;  // at least one; each gets `n` choices
  bool echo = false;                      // the text begins with the prompt's
};

// Reads `body`, an object. INVALID_ARGUMENT names the field: it is wrong, or it asks for something
// that would change the result and that this server does not support. The engine makes its own
// checks later.
Fault read_completion(const Json& body, CompletionRequest& request);

}  // namespace runnel
