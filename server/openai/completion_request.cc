#include "server/openai/completion_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "server/openai/request_fields.h"
#include "server/openai/sampling_fields.h"

namespace runnel {
namespace {

constexpr int64_t kDefaultTokens = 16;  // as OpenAI has it
constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr const char* kReplacement = "\xEF\xBF\xBD";

// What changes nothing of the answer, or nothing at all here.
constexpr auto kHarmless = {"user",
                            "metadata",
                            "store",
                            "service_tier",
                            "safety_identifier",
                            "prompt_cache_key",
                            "prompt_cache_retention"};

// A text or a list of tokens.
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

void read_stop(RequestFields& fields, CompletionRequest& request) {
  const Json* const stop = fields.find("stop");
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  for (const Json& text : list) {
    if (!text.is_string()) return fields.refuse("stop", "must be a text, or a list of texts");
    // It is where bytes are not text: the engine, which compares bytes, never meets it there.
    if (text.get_ref<const std::string&>().find(kReplacement) != std::string::npos) {
      return fields.refuse("stop", "has the character U+FFFD, which stands for what is no text");
    }
    request.call.stop_text.push_back(text.get<std::string>());
  }
}

void read_counts(RequestFields& fields, CompletionRequest& request) {
  request.call.max_values = fields.integer("max_tokens", 0, kMostTokens).value_or(kDefaultTokens);
  if (const auto logprobs = fields.integer("logprobs", 0, kMaxTopLogProbs)) {
    request.logprobs = static_cast<int>(*logprobs);
    request.call.top_log_probs = *request.logprobs;
  }
}

void read_answer_form(RequestFields& fields, CompletionRequest& request) {
  request.echo = fields.boolean("echo", false);
  request.stream = fields.boolean("stream", false);
  request.return_token_ids = fields.boolean("return_token_ids", false);
  const Json* const options = fields.find("stream_options");
  if (request.echo && request.logprobs) {
    fields.refuse("echo",
                  "is not done here together with logprobs: the log-probabilities of a prompt are "
                  "what Score gives, by gRPC");
  }
  if (options == nullptr) return;
  if (!options->is_object()) return fields.refuse("stream_options", "must be an object");
  if (!request.stream) return fields.refuse("stream_options", "is for a stream: set stream");
  RequestFields members(*options);
  request.include_usage = members.boolean("include_usage", false);
  members.boolean("include_obfuscation", false);  // pads chunks; there is no need to
  if (const Fault fault = members.end(); !fault.ok()) {
    fields.refuse("stream_options", "." + fault.status.message());
  }
}

// What goes beyond OpenAI's API.
void read_extensions(RequestFields& fields, CompletionRequest& request) {
  GenerateRequest& call = request.call;
  call.session = fields.text("session");
  call.state = fields.text("state");
  call.ignore_eos = fields.boolean("ignore_eos", false);
  if (fields.find("keep") != nullptr) call.keep = fields.boolean("keep", false);
  call.expected_position = fields.integer("position", 0, kAnyInteger);
  if (request.prompts.size() > 1 && (call.session || call.keep.value_or(false))) {
    fields.refuse(call.session ? "session" : "keep", "is for one prompt; send one");
  }
}

// What would change the result: refused, unless it is what holds anyway.
void refuse_undone(RequestFields& fields, const CompletionRequest& request) {
  for (const char* const key : {"presence_penalty", "frequency_penalty"}) {
    if (fields.number(key).value_or(0) != 0) {
      fields.refuse(key, "is not done here; leave it out, or 0");
    }
  }
  const Json* const bias = fields.find("logit_bias");
  if (bias != nullptr && !(bias->is_object() && bias->empty())) {
    fields.refuse("logit_bias", "is not done here; leave it out");
  }
  const auto best_of = fields.integer("best_of", 1, kAnyInteger);
  if (best_of && *best_of != request.call.samples) {
    fields.refuse("best_of", "is not done here; leave it out, or as n");
  }
  if (!fields.text("suffix").value_or("").empty()) {
    fields.refuse("suffix", "is not done here; leave it out");
  }
}

}  // namespace

Fault read_completion(const Json& body, CompletionRequest& request) {
  RequestFields fields(body);
  request.model = fields.text("model").value_or("");
  read_prompts(fields, request);
  read_counts(fields, request);
  read_sampling(fields, request.call);
  read_stop(fields, request);
  read_answer_form(fields, request);
  read_extensions(fields, request);
  refuse_undone(fields, request);
  for (const char* const key : kHarmless) static_cast<void>(fields.find(key));
  return fields.end();
}

}  // namespace runnel
