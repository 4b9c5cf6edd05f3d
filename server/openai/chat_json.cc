#include "server/openai/chat_json.h"

#include <algorithm>
#include <utility>

#include "base/json_fields.h"
#include "server/http/event_stream.h"
#include "server/openai/random_hex.h"

namespace runnel {
namespace {

constexpr float kLeastLogProb = -9999.0F;  // OpenAI's value for practically impossible tokens

OrderedJson usage_json(const AnswerUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

OrderedJson token_json(int32_t value, float log_prob, const Tokenizer* tokenizer) {
  OrderedJson bytes = OrderedJson::array();
  if (tokenizer != nullptr) {
    for (const char byte : tokenizer->bytes(value)) {
      bytes.push_back(static_cast<unsigned char>(byte));
    }
  }
  return {{"token", token_name(value, tokenizer)},
          {"logprob", shortest(std::max(log_prob, kLeastLogProb))},
          {"bytes", std::move(bytes)}};
}

OrderedJson call_json(const AnsweredToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.call.name}, {"arguments", call.call.arguments}}}};
}

void add_end(const ChoiceEnd& end, OrderedJson& choice) {
  choice["position"] = end.position;
  if (!end.session.empty()) choice["session"] = end.session;
  if (!end.state_token.empty()) choice["state_token"] = end.state_token;
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

}  // namespace

ChatJson::ChatJson(Options options) : options_(std::move(options)) {
  const OrderedJson head = {
      {"id", "chatcmpl-" + random_hex(32)},
      {"object", options_.stream ? "chat.completion.chunk" : "chat.completion"},
      {"created", options_.created},
      {"model", options_.model},
      {"system_fingerprint", options_.numerics}};
  head_ = json_text(head);
  head_.back() = ',';
  head_ += R"("choices":[)";
}

void ChatJson::add_tokens(const std::vector<ChoiceToken>& tokens, OrderedJson& choice) const {
  choice["logprobs"] = nullptr;
  if (options_.logprobs) {
    OrderedJson content = OrderedJson::array();
    const Tokenizer* const tokenizer = options_.tokenizer.get();
    for (const ChoiceToken& token : tokens) {
      content.push_back(logprob_json(token, tokenizer));
    }
    choice["logprobs"] = {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  if (!options_.token_ids) return;
  OrderedJson& ids = choice["token_ids"] = OrderedJson::array();
  for (const ChoiceToken& token : tokens) ids.push_back(token.value);
}

std::string ChatJson::choice(int index, const ChatMessage& message,
                             const std::vector<ChoiceToken>& tokens, const ChoiceEnd& end,
                             const char* finish_reason) const {
  const bool silent = message.content.empty() && !message.calls.empty();
  OrderedJson said = {{"role", "assistant"},
                      {"content", silent ? OrderedJson() : OrderedJson(message.content)},
                      {"refusal", nullptr},
                      {"reasoning_content", text_or_null(message.thinking)}};
  if (!message.calls.empty()) {
    OrderedJson& calls = said["tool_calls"] = OrderedJson::array();
    for (const AnsweredToolCall& call : message.calls) calls.push_back(call_json(call));
  }
  OrderedJson choice = {{"index", index}, {"message", std::move(said)}};
  add_tokens(tokens, choice);
  choice["finish_reason"] = finish_reason;
  add_end(end, choice);
  return json_text(choice);
}

std::string ChatJson::whole(const std::string& choices, const AnswerUsage& usage) const {
  return head_ + choices + R"(],"usage":)" + json_text(usage_json(usage)) + "}\n";
}

std::string ChatJson::chunk(int index, const OrderedJson& delta,
                            const std::vector<ChoiceToken>& tokens, const ChoiceEnd* end,
                            const char* finish_reason) const {
  OrderedJson choice = {{"index", index}, {"delta", delta}};
  add_tokens(tokens, choice);
  choice["finish_reason"] = end == nullptr ? OrderedJson() : OrderedJson(finish_reason);
  if (end != nullptr) add_end(*end, choice);
  return event_of(head_ + json_text(choice) + (options_.usage_last ? R"(],"usage":null})" : "]}"));
}

std::string ChatJson::last_events(const AnswerUsage& usage) const {
  const std::string done = event_of("[DONE]");
  if (!options_.usage_last) return done;
  return event_of(head_ + R"(],"usage":)" + json_text(usage_json(usage)) + "}") + done;
}

OrderedJson logprob_json(const ChoiceToken& token, const Tokenizer* tokenizer) {
  OrderedJson entry = token_json(token.value, token.log_prob.value_or(0), tokenizer);
  OrderedJson& top = entry["top_logprobs"] = OrderedJson::array();
  for (const TopLogProb& likely : token.top) {
    top.push_back(token_json(likely.value, likely.log_prob, tokenizer));
  }
  return entry;
}

OrderedJson call_name_delta(int index, const AnsweredToolCall& call) {
  OrderedJson entry = {{"index", index}};
  entry.update(call_json(call));
  entry["function"]["arguments"] = "";
  return {{"tool_calls", OrderedJson::array({std::move(entry)})}};
}

OrderedJson call_arguments_delta(int index, const AnsweredToolCall& call) {
  const OrderedJson entry = {{"index", index}, {"function", {{"arguments", call.call.arguments}}}};
  return {{"tool_calls", OrderedJson::array({entry})}};
}

}  // namespace runnel
