#include "server/openai/completion_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "server/http/request_fields.h"
#include "server/openai/neutral_fields.h"
#include "server/openai/sampling_fields.h"

namespace runnel {
namespace {

constexpr int64_t kDefaultTokens = 16;  // OpenAI's default
constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostTokens = int64_t{1} << 40;

// A text, or a list of tokens.
std::optional<CompletionPrompt> prompt_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  auto tokens = tokens_of(value);
  return tokens ? std::optional<CompletionPrompt>(std::move(*tokens)) : std::nullopt;
}

// A prompt, or a list of prompts. A list of numbers is one prompt.
void read_prompts(RequestFields& fields, CompletionRequest& request) {
  const Json* const prompt = fields.find("prompt");
  const bool is_list =
      prompt != nullptr && prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (prompt == nullptr) {
    request.prompts.emplace_back();
  } else if (is_list && prompt->size() > kMaxPrompts) {
    fields.refuse("prompt", "has " + std::to_string(prompt->size()) + " prompts; at most " +
                                std::to_string(kMaxPrompts) + " are allowed");
  } else {
    const size_t count = is_list ? prompt->size() : 1;
    for (size_t i = 0; i < count; ++i) {
      auto read = prompt_of(is_list ? (*prompt)[i] : *prompt);
      if (read) {
        request.prompts.push_back(std::move(*read));
        continue;
      }
      return fields.refuse("prompt",
                           "must be a text, a list of tokens from 0 to 2147483647, or a list of "
                           "either");
    }
  }
}

void read_counts(RequestFields& fields, AnswerRequest& request) {
  request.call.max_values = fields.integer("max_tokens", 0, kMostTokens).value_or(kDefaultTokens);
  if (const auto logprobs = fields.integer("logprobs", 0, kMaxTopLogProbs)) {
    request.logprobs = static_cast<int>(*logprobs);
    request.call.top_log_probs = *request.logprobs;
  }
}

// A session continues with one prompt. Must come after `state`.
void read_session(RequestFields& fields, CompletionRequest& request) {
  GenerateRequest& call = request.answer.call;
  call.session = fields.text("session");
  if (call.session && call.state) {
    fields.refuse("state", "cannot be combined with session; leave one of them out");
  }
  if (request.prompts.size() > 1 && (call.session || call.keep.value_or(false))) {
    fields.refuse(call.session ? "session" : "keep", "is for one prompt; send one");
  }
}

// A call with tokens starts in a new session, which has not read any of the prompt.
void check_token_use(RequestFields& fields, const CompletionRequest& request) {
  const AnswerRequest& answer = request.answer;
  if (!answer.token.any()) return;
  const char* const field = answer.token.given ? "state_token" : "include_state";
  if (request.prompts.size() > 1) fields.refuse(field, "is for one prompt; send one");
  if (request.echo && answer.logprobs) {
    fields.refuse(field, "cannot be combined with echo and logprobs; leave one of them out");
  }
}

// Every choice is returned, so best_of must equal n.
void read_best_of(RequestFields& fields, const CompletionRequest& request) {
  const auto best_of = fields.integer("best_of", 1, kAnyInteger);
  if (best_of && *best_of != request.answer.call.samples) {
    fields.refuse("best_of", "is not supported here; leave it out, or send n");
  }
}

}  // namespace

Fault read_completion(const Json& body, CompletionRequest& request) {
  RequestFields fields(body);
  AnswerRequest& answer = request.answer;
  answer.model = fields.text("model").value_or("");
  read_prompts(fields, request);
  read_counts(fields, answer);
  read_samples(fields, answer.call);
  read_sampling(fields, answer.call);
  read_penalties(fields, answer.call);
  read_stop(fields, answer);
  request.echo = fields.boolean("echo", false);
  read_answer_form(fields, answer);
  read_extensions(fields, answer);
  read_keeping(fields, answer);
  read_tokens(fields, answer);
  read_session(fields, request);
  check_token_use(fields, request);
  read_best_of(fields, request);
  read_neutral(fields);
  read_harmless(fields);
  return fields.end();
}

}  // namespace runnel
