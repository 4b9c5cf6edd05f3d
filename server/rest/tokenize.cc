#include "server/rest/tokenize.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "server/http/header_text.h"
#include "server/http/read_aside.h"
#include "server/http/request_fields.h"
#include "server/http/short_call.h"
#include "server/rest/json_body.h"
#include "server/rest/words.h"

namespace runnel {
namespace {

// Memory for one token in an answer. The answer's buffers double when they grow.
constexpr int64_t kTokenBytes = 64;
// Memory for one byte of text in an answer. The answer has the text twice, escaped, and its buffers
// double when they grow.
constexpr int64_t kAnswerFactor = 40;

// The text is in llama-server's field `content` or in vLLM's field `prompt`.
std::string text_of(RequestFields& fields) {
  const auto content = fields.text("content");
  const auto prompt = fields.text("prompt");
  if (!content && !prompt) fields.refuse("prompt", "is not set; expected a text");
  if (content && prompt) {
    fields.refuse("content", "cannot be combined with prompt; leave one of them out");
  }
  return content ? *content : prompt.value_or("");
}

Fault tokenize(ShortCall& call) {
  const Result<Json> body = read_body(call, call.request.body);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string model = fields.text("model").value_or("");
  const std::string text = text_of(fields);
  if (fields.boolean("add_special_tokens", false) || fields.boolean("add_special", false)) {
    fields.refuse("add_special_tokens", "is not done here; leave it out, or false");
  }
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  if (Fault fault = call.find_model(model); !fault.ok()) return fault;
  const TextInput input = call.state.text_input(*call.model, model);
  const auto values = values_of_text(text, input);
  if (!values.ok()) return rest_fault(values.status());
  if (Status s = call.reserve(kTokenBytes * std::ssize(*values)); !s.ok()) return {s};
  call.answer = {{"tokens", *values}, {"count", values->size()}};
  return {};
}

// Answers with the text of the model's end-of-text token, as vLLM does. `?model=` names the model.
Fault describe_tokenizer(ShortCall& call) {
  const std::string model = query_of(call.request.target, "model");
  if (Fault fault = call.find_model(model); !fault.ok()) return fault;
  const Tokenizer* const tokenizer = call.model->tokenizer.get();
  if (tokenizer == nullptr) {
    return {invalid_argument("model '" + name_for(model, *call.model) + "' has no tokenizer"),
            "model"};
  }
  const std::vector<int32_t>& eos = call.model->engine->spec().eos;
  const std::string_view text = eos.empty() ? "" : tokenizer->bytes(eos.front());
  const bool is_text = !text.empty() && valid_utf8_prefix(text) == text.size();
  call.answer = {{"bos_token", nullptr},
                 {"eos_token", is_text ? OrderedJson(text) : OrderedJson()}};
  return {};
}

// The text of `tokens`, no longer than a prompt may be. `model` is the name that the caller used.
Result<std::string> text_of(const std::vector<int32_t>& tokens, const std::string& model,
                            ShortCall& call) {
  const Tokenizer& tokenizer = *call.model->tokenizer;
  const int64_t at_most = call.state.text_bytes;
  const int64_t longest = Utf8Stream::kMostPerByte * tokenizer.longest();
  const int64_t bytes = std::min(std::ssize(tokens) * longest, at_most + longest);
  if (Status s = call.reserve(kAnswerFactor * bytes); !s.ok()) return s;
  std::string text;
  Utf8Stream characters;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t value = tokens[i];
    if (value >= tokenizer.size()) {
      return invalid_argument("tokens holds " + std::to_string(value) + "; model '" +
                              name_for(model, *call.model) + "' has tokens 0 to " +
                              std::to_string(tokenizer.size() - 1));
    }
    characters.add(tokenizer.bytes(value, i == 0), text);
    if (std::ssize(text) > at_most) break;
  }
  characters.end(text);
  if (std::ssize(text) <= at_most) return text;
  return invalid_argument("tokens come to more than " + std::to_string(at_most) +
                          " bytes of text; send fewer");
}

Fault detokenize(ShortCall& call) {
  const Result<Json> body = read_body(call, call.request.body);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string model = fields.text("model").value_or("");
  const auto tokens = fields.tokens("tokens");
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  if (Fault fault = call.find_model(model); !fault.ok()) return fault;
  if (call.model->tokenizer == nullptr) {
    return {invalid_argument("model '" + name_for(model, *call.model) + "' has no tokenizer"),
            "model"};
  }
  Result<std::string> text = text_of(tokens, model, call);
  if (!text.ok()) return {text.status(), "tokens"};
  call.answer["prompt"] = *text;
  call.answer["content"] = std::move(*text);
  return {};
}

}  // namespace

std::vector<HttpRoute> tokenize_routes(ServerContext& state, const Gate& gate) {
  const auto short_call = [&](const char* rpc, std::function<Fault(ShortCall&)> handle) {
    return gate.guard(read_aside(state, answer_at_once(state, rpc, std::move(handle))));
  };
  return {{"POST", "/tokenize", short_call("openai.tokenize", tokenize)},
          {"GET", "/tokenizer_info", short_call("openai.tokenize", describe_tokenizer)},
          {"POST", "/detokenize", short_call("openai.detokenize", detokenize)}};
}

}  // namespace runnel
