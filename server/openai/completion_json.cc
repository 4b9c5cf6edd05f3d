#include "server/openai/completion_json.h"

#include <utility>

#include "base/json.h"
#include "base/json_fields.h"
#include "server/http/event_stream.h"
#include "server/openai/random_hex.h"

namespace runnel {
namespace {

OrderedJson usage_json(const AnswerUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

// Four lists, with an entry for each value.
OrderedJson logprobs_json(const ChoicePart& part, const Tokenizer* tokenizer, bool with_top) {
  OrderedJson tokens = OrderedJson::array(), log_probs = OrderedJson::array();
  OrderedJson tops = OrderedJson::array(), offsets = OrderedJson::array();
  int64_t at = part.bytes;
  int64_t characters = part.characters;
  for (const ChoiceToken& token : part.tokens) {
    tokens.push_back(token_name(token.value, tokenizer));
    log_probs.push_back(token.log_prob ? OrderedJson(shortest(*token.log_prob)) : OrderedJson());
    // The most likely token comes first. If several have the same text, the format has room for
    // only the first.
    OrderedJson top = OrderedJson::object();
    for (const TopLogProb& likely : token.top) {
      top.emplace(token_name(likely.value, tokenizer), shortest(likely.log_prob));
    }
    tops.push_back(token.log_prob ? std::move(top) : OrderedJson());
    const auto from = static_cast<size_t>(at - part.bytes);
    characters += characters_in(std::string_view(part.text).substr(from, token.begin - at));
    at = token.begin;
    offsets.push_back(characters);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(log_probs)},
          {"top_logprobs", with_top ? std::move(tops) : OrderedJson()},
          {"text_offset", std::move(offsets)}};
}

}  // namespace

CompletionFormat::CompletionFormat(Options options) : options_(std::move(options)) {
  const OrderedJson head = {{"id", "cmpl-" + random_hex(32)},
                            {"object", "text_completion"},
                            {"created", options_.created},
                            {"model", options_.model},
                            {"system_fingerprint", options_.numerics}};
  head_ = json_text(head);
  head_.back() = ',';
  head_ += R"("choices":[)";
}

std::string CompletionFormat::choice(int index, const ChoicePart& part,
                                     const ChoiceEnd* end) const {
  OrderedJson choice = {{"index", index}, {"text", part.text}, {"logprobs", nullptr}};
  if (options_.logprobs) {
    choice["logprobs"] = logprobs_json(part, options_.tokenizer.get(), *options_.logprobs > 0);
  }
  choice["finish_reason"] =
      end == nullptr ? OrderedJson() : OrderedJson(end->stopped() ? "stop" : "length");
  if (options_.token_ids) {
    OrderedJson& ids = choice["token_ids"] = OrderedJson::array();
    for (const ChoiceToken& token : part.tokens) ids.push_back(token.value);
  }
  if (end != nullptr) {
    choice["position"] = end->position;
    if (!end->session.empty()) choice["session"] = end->session;
    if (!end->state_token.empty()) choice["state_token"] = end->state_token;
  }
  return json_text(choice);
}

std::string CompletionFormat::whole(const std::string& choices, const AnswerUsage& usage) const {
  return head_ + choices + R"(],"usage":)" + json_text(usage_json(usage)) + "}\n";
}

std::string CompletionFormat::chunk(const std::string& choice) const {
  return event_of(head_ + choice + (options_.usage_last ? R"(],"usage":null})" : "]}"));
}

std::string CompletionFormat::last_chunk(const AnswerUsage& usage) const {
  const std::string done = event_of("[DONE]");
  if (!options_.usage_last) return done;
  return event_of(head_ + R"(],"usage":)" + json_text(usage_json(usage)) + "}") + done;
}

}  // namespace runnel
