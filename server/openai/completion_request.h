// The body of POST /v1/completions, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/openai/fault.h"

namespace runnel {

inline constexpr int kMaxPrompts = 64;  // of one request

using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::string model;                      // empty: the only one
  std::vector<CompletionPrompt> prompts;  // at least one; each gets `call.samples` choices
  GenerateRequest call;                   // all but the prompt and what depends on the model
  bool echo = false;                      // the text begins with the prompt's
  std::optional<int> logprobs;            // so many of the most likely values beside each value's
  bool stream = false;
  bool include_usage = false;  // the last chunk of a stream has the usage
  bool return_token_ids = false;
};

// Reads `body`, an object. INVALID_ARGUMENT names the field, also where it asks for something that
// would change the result and is not done here. What the engine checks is left to it.
Fault read_completion(const Json& body, CompletionRequest& request);

}  // namespace runnel
