#include "server/openai/response_output.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/ordered_json.h"
#include "server/http/event_stream.h"
#include "server/openai/chat_json.h"
#include "server/openai/random_hex.h"

namespace runnel {
namespace {

using Kind = ChatEvent::Kind;

constexpr const char* kInProgress = "in_progress";
constexpr const char* kCompleted = "completed";
constexpr const char* kIncomplete = "incomplete";
// Copies of the items while the last event of a stream is made and the response is stored: six, two
// of which may have three times as many bytes, because event_of() escapes U+0085.
constexpr int64_t kLastEventFactor = 6 + 2 * 2;
// The same of the members that repeat the request. The first two events of a stream take as much.
constexpr int64_t kRepeatedTexts = 4 + 2 * 2;
constexpr int64_t kTokenText = 256;  // of a token or a likely one as JSON

OrderedJson usage_json(const AnswerUsage& usage) {
  return {
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

OrderedJson call_json(const std::string& id, const AnsweredToolCall& call, const char* status,
                      const std::string& arguments) {
  return {{"type", "function_call"}, {"id", id},
          {"call_id", call.id},      {"name", call.call.name},
          {"arguments", arguments},  {"status", status}};
}

}  // namespace

ResponseOutput::ResponseOutput(Options options)
    : options_(std::move(options)), id_("resp_" + random_hex(48)) {
  response_event("response.created", {{"status", kInProgress}});
  response_event("response.in_progress", {{"status", kInProgress}});
}

// --- Items ---

void ResponseOutput::add_tokens(std::vector<ChoiceToken> tokens) {
  for (const ChoiceToken& token : tokens) {
    token_bytes_ += kTokenText * (1 + std::ssize(token.top));
  }
  std::ranges::move(tokens, std::back_inserter(pending_));
}

std::vector<ChoiceToken> ResponseOutput::take_pending(int64_t end) {
  std::vector<ChoiceToken> later;
  const auto first = std::ranges::find_if(
      pending_, [end](const ChoiceToken& token) { return token.begin >= end; });
  std::move(first, pending_.end(), std::back_inserter(later));
  pending_.erase(first, pending_.end());
  return std::exchange(pending_, std::move(later));
}

void ResponseOutput::say(Kind kind, std::string_view text, int64_t end) {
  if (open_.empty() || open_.back().kind != kind) {
    close(kCompleted);
    open(kind);
  }
  Item& item = open_.back();
  item.text += text;
  if (kind == Kind::kThinking) {
    return text_event("response.reasoning_text.delta", "delta", std::string(text));
  }
  std::ranges::move(take_pending(end), std::back_inserter(item.tokens));
  text_event("response.output_text.delta", "delta", std::string(text));
}

void ResponseOutput::open(Kind kind) {
  const char* const prefix = kind == Kind::kThinking ? "rs_" : "msg_";
  open_.push_back({.kind = kind, .id = prefix + random_hex(32), .text = {}, .tokens = {}});
  item_event("response.output_item.added", item_json(open_.back(), kInProgress, false));
  text_event("response.content_part.added", "part", part_json(open_.back()));
}

void ResponseOutput::close(const char* status) {
  if (open_.empty()) return;
  Item& item = open_.back();
  const bool thinks = item.kind == Kind::kThinking;
  if (!thinks && !pending_.empty()) {
    std::ranges::move(std::exchange(pending_, {}), std::back_inserter(item.tokens));
    text_event("response.output_text.delta", "delta", "");
  }
  item.told = 0;
  text_event(thinks ? "response.reasoning_text.done" : "response.output_text.done", "text",
             item.text);
  text_event("response.content_part.done", "part", part_json(item));
  const OrderedJson whole = item_json(item, status, true);
  item_event("response.output_item.done", whole);
  open_.clear();
  add_item(whole);
}

void ResponseOutput::call(const AnsweredToolCall& call, int64_t end) {
  take_pending(end);
  std::vector<ChoiceToken> later = std::exchange(pending_, {});
  close(kCompleted);
  pending_ = std::move(later);
  const std::string id = "fc_" + random_hex(32);
  const std::string& arguments = call.call.arguments;
  item_event("response.output_item.added", call_json(id, call, kInProgress, ""));
  OrderedJson members = {{"item_id", id}, {"output_index", count_}, {"delta", arguments}};
  event("response.function_call_arguments.delta", members);
  members = {{"item_id", id},
             {"output_index", count_},
             {"name", call.call.name},
             {"arguments", arguments}};
  event("response.function_call_arguments.done", members);
  const OrderedJson whole = call_json(id, call, kCompleted, arguments);
  item_event("response.output_item.done", whole);
  add_item(whole);
}

void ResponseOutput::finish(bool complete, std::string state_token) {
  complete_ = complete;
  state_token_ = std::move(state_token);
  if (open_.empty() && count_ == 0) open(Kind::kContent);
  close(complete ? kCompleted : kIncomplete);
}

void ResponseOutput::add_item(const OrderedJson& item) {
  if (count_++ > 0) items_ += ",";
  items_ += json_text(item);
}

OrderedJson ResponseOutput::item_json(const Item& item, const char* status,
                                      bool with_content) const {
  const bool thinks = item.kind == Kind::kThinking;
  OrderedJson json = {{"type", thinks ? "reasoning" : "message"}, {"id", item.id}};
  if (thinks) {
    json["summary"] = OrderedJson::array();
  } else {
    json["role"] = "assistant";
  }
  OrderedJson& content = json["content"] = OrderedJson::array();
  if (with_content) content.push_back(part_json(item));
  json["status"] = status;
  return json;
}

OrderedJson ResponseOutput::part_json(const Item& item) const {
  if (item.kind == Kind::kThinking) return {{"type", "reasoning_text"}, {"text", item.text}};
  return {{"type", "output_text"},
          {"text", item.text},
          {"annotations", OrderedJson::array()},
          {"logprobs", logprobs_json(item.tokens, 0)}};
}

OrderedJson ResponseOutput::logprobs_json(const std::vector<ChoiceToken>& tokens,
                                          size_t from) const {
  OrderedJson list = OrderedJson::array();
  for (size_t i = from; i < tokens.size(); ++i) {
    list.push_back(logprob_json(tokens[i], options_.tokenizer.get()));
  }
  return list;
}

// --- Events ---

void ResponseOutput::event(const char* type, const OrderedJson& members) {
  if (!options_.stream) return;
  OrderedJson json = {{"type", type}, {"sequence_number", sequence_++}};
  json.update(members);
  events_ += event_of(json_text(json), type);
}

void ResponseOutput::item_event(const char* type, OrderedJson item) {
  event(type, {{"output_index", count_}, {"item", std::move(item)}});
}

void ResponseOutput::text_event(const char* type, const char* key, OrderedJson value) {
  if (!options_.stream) return;
  Item& item = open_.back();
  OrderedJson members = {{"item_id", item.id},
                         {"output_index", count_},
                         {"content_index", 0},
                         {key, std::move(value)}};
  if (item.kind == Kind::kContent && std::string_view(key) != "part") {
    members["logprobs"] = logprobs_json(item.tokens, std::exchange(item.told, item.tokens.size()));
  }
  event(type, members);
}

void ResponseOutput::response_event(const char* type, const OrderedJson& members) {
  if (!options_.stream) return;
  const OrderedJson head = {{"type", type}, {"sequence_number", sequence_++}};
  std::string text = json_text(head);
  text.back() = ',';
  events_ += event_of(text + R"("response":)" + response_json(members) + "}", type);
}

std::string ResponseOutput::take_events() { return std::exchange(events_, {}); }

// --- The response ---

std::string ResponseOutput::response_json(const OrderedJson& members) const {
  OrderedJson json = {{"id", id_},
                      {"object", "response"},
                      {"created_at", options_.created},
                      {"model", options_.model},
                      {"status", nullptr},
                      {"error", nullptr},
                      {"incomplete_details", nullptr}};
  json.update(options_.echo);
  json.update(members);
  std::string text = json_text(json);
  text.back() = ',';
  if (!state_token_.empty()) text += R"("state_token":")" + state_token_ + R"(",)";
  return text + R"("output":[)" + items_ + "]}";
}

OrderedJson ResponseOutput::end_json(const AnswerUsage& usage) const {
  OrderedJson end = {{"status", complete_ ? kCompleted : kIncomplete}};
  if (!complete_) end["incomplete_details"] = {{"reason", "max_output_tokens"}};
  end["usage"] = usage_json(usage);
  return end;
}

std::string ResponseOutput::whole(const AnswerUsage& usage) const {
  return response_json(end_json(usage)) + "\n";
}

std::string ResponseOutput::last_events(const AnswerUsage& usage) {
  response_event(complete_ ? "response.completed" : "response.incomplete", end_json(usage));
  return take_events();
}

std::string ResponseOutput::failure_events(const Fault& fault) {
  state_token_.clear();
  const bool refused = fault.status.code() == Code::kResourceExhausted;
  const OrderedJson error = {{"code", refused ? "rate_limit_exceeded" : "server_error"},
                             {"message", fault.status.message()}};
  response_event("response.failed", {{"status", "failed"}, {"error", error}});
  return take_events();
}

int64_t ResponseOutput::bytes_repeated() const {
  return 2 * tree_bytes(options_.echo) + kRepeatedTexts * std::ssize(json_text(options_.echo));
}

int64_t ResponseOutput::bytes() const {
  const size_t open = open_.empty() ? 0 : open_.back().text.capacity();
  return token_bytes_ + kLastEventFactor * static_cast<int64_t>(items_.capacity() + open);
}

}  // namespace runnel
