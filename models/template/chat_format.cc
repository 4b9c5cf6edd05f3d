#include "models/template/chat_format.h"

#include <algorithm>
#include <utility>

#include "base/ordered_json.h"

namespace runnel {
namespace {

constexpr JsonLimits kArgumentLimits{16 << 20, 1'000'000, 32};

// The texts of the parts, joined; none if a part has another type than text.
std::optional<std::string> joined(const OrderedJson& parts) {
  std::string text;
  for (const OrderedJson& part : parts) {
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string()) return {};
    if (&part != &parts.front()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

// Makes the arguments of a call an object. `path` is the path of the call.
Status adapt_call(OrderedJson& call, const std::string& path) {
  if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) return {};
  OrderedJson& function = call["function"];
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->is_string()) return {};
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) {
    *arguments = OrderedJson::object();
    return {};
  }
  Result<OrderedJson> object =
      parse_ordered_json(text, path + ".function.arguments", kArgumentLimits);
  if (!object.ok()) return object.status();
  if (!object->is_object()) {
    return invalid_argument(path + ".function.arguments: expected an object as JSON text");
  }
  *arguments = std::move(*object);
  return {};
}

Status adapt(OrderedJson& message, const std::string& path, const ChatTraits& traits) {
  if (!message.is_object()) return {};
  const auto role = message.find("role");
  if (role != message.end() && *role == "developer" && !traits.developer) *role = "system";
  const auto content = message.find("content");
  if (content != message.end() && content->is_array() && !traits.takes_parts) {
    if (auto text = joined(*content)) *content = std::move(*text);
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return {};
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string of_call = path + ".tool_calls[" + std::to_string(i) + "]";
    if (Status s = adapt_call((*calls)[i], of_call); !s.ok()) return s;
  }
  const bool has_content = message.contains("content") && !message["content"].is_null();
  if (!has_content && traits.call_needs_content()) message["content"] = "";
  return {};
}

Status adapt_all(OrderedJson& messages, const ChatTraits& traits) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string path = "messages[" + std::to_string(i) + "]";
    if (Status s = adapt(messages[i], path, traits); !s.ok()) return s;
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const ChatFormat>> ChatFormat::make(
    const TemplateFiles& files, std::shared_ptr<const Tokenizer> tokenizer) {
  Result<TemplateSet> templates = TemplateSet::parse(files);
  if (!templates.ok()) return templates.status();
  Result<ChatTraits> traits = probe(*templates);
  if (!traits.ok()) {
    return Status(traits.status().code(),
                  "the template refuses a plain conversation: " + traits.status().message());
  }
  std::shared_ptr<ChatFormat> format(
      new ChatFormat(std::move(*templates), std::move(*traits), files.begin, std::move(tokenizer)));
  if (Status s = format->find_end_of_turn(); !s.ok()) return s;
  return std::shared_ptr<const ChatFormat>(std::move(format));
}

ChatFormat::ChatFormat(TemplateSet templates, ChatTraits traits, std::vector<int32_t> begin,
                       std::shared_ptr<const Tokenizer> tokenizer)
    : templates_(std::move(templates)),
      traits_(std::move(traits)),
      begin_(std::move(begin)),
      tokenizer_(std::move(tokenizer)) {}

Status ChatFormat::find_end_of_turn() {
  const MarkedText& after = traits_.after_answer;
  const size_t user = std::min(after.bytes.find(kProbeUser), after.bytes.size());
  const MarkedText end = part_of(after.bytes, after.runs, 0, user);
  const auto values = encode(end);
  if (!values.ok()) return values.status();
  for (const int32_t value : *values) {
    if (!end_of_turn_ && tokenizer_->is_control(value)) end_of_turn_ = value;
  }
  if (end_of_turn_) return {};
  const size_t last = end.bytes.find_last_not_of(" \t\n");
  stop_text_ = last == std::string::npos ? "" : end.bytes.substr(0, last + 1);
  return {};
}

Result<MarkedText> ChatFormat::render(Conversation conversation, WorkLimit limit) const {
  if (Status s = adapt_all(conversation.messages, traits_); !s.ok()) return s;
  return templates_.render(std::move(conversation), limit);
}

Result<MarkedText> ChatFormat::render_next(Conversation news, WorkLimit limit) const {
  if (!traits_.follows_any_answer) {
    return invalid_argument(
        "the template writes new messages in a way that depends on earlier ones");
  }
  if (Status s = adapt_all(news.messages, traits_); !s.ok()) return s;
  OrderedJson messages = OrderedJson::array(
      {{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}, {"content", kProbeAnswer}}});
  for (OrderedJson& message : news.messages) messages.push_back(std::move(message));
  news.messages = std::move(messages);
  const Result<MarkedText> text = templates_.render(std::move(news), limit);
  if (!text.ok()) return text;
  const size_t answer = text->bytes.find(kProbeAnswer);
  if (answer == std::string::npos) {
    return invalid_argument("the template leaves out an answer that these messages follow");
  }
  return part_of(text->bytes, text->runs, answer + kProbeAnswer.size(), text->bytes.size());
}

Result<std::vector<int32_t>> ChatFormat::encode(const MarkedText& text, WorkLimit limit) const {
  return tokenizer_->encode(text, limit);
}

int64_t ChatFormat::shared_with_next(Conversation conversation, std::span<const int32_t> values,
                                     WorkLimit limit) const {
  conversation.add_generation_prompt = false;
  const auto text = render(std::move(conversation), limit);
  if (!text.ok()) return 0;
  const auto history = encode(*text, limit);
  if (!history.ok()) return 0;
  const auto parts = std::ranges::mismatch(values, *history).in1;
  const auto is_control = [this](int32_t value) { return tokenizer_->is_control(value); };
  const bool ends = parts != values.begin() && is_control(parts[-1]);
  const bool follows = parts != values.end() && is_control(*parts);
  const int64_t shared = parts - values.begin();
  return ends || follows || shared == 0 ? shared : shared - 1;
}

}  // namespace runnel
