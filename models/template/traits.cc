#include "models/template/traits.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/json.h"
#include "base/work_limit.h"

namespace runnel {
namespace {

constexpr std::string_view kKind = "Be kind.", kOther = "zqROLEqz";
constexpr size_t kBytesBeforeCall = 60;
constexpr std::chrono::seconds kProbing{4};

OrderedJson message(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

OrderedJson with(OrderedJson messages, std::initializer_list<OrderedJson> more) {
  for (const OrderedJson& one : more) messages.push_back(one);
  return messages;
}

OrderedJson tool() {
  const OrderedJson text = {{"type", "string"}};
  OrderedJson properties = OrderedJson::object();
  properties[std::string(kProbeKey)] = text;
  const OrderedJson parameters = {
      {"type", "object"}, {"properties", properties}, {"required", OrderedJson::array()}};
  return {{"type", "function"},
          {"function", {{"name", kProbeTool}, {"description", "d"}, {"parameters", parameters}}}};
}

OrderedJson call() {
  OrderedJson arguments = OrderedJson::object();
  arguments[std::string(kProbeKey)] = kProbeValue;
  return {{"id", "abcdef123"},
          {"type", "function"},
          {"function", {{"name", kProbeTool}, {"arguments", arguments}}}};
}

bool has(const Result<MarkedText>& text, std::string_view part) {
  return text.ok() && text->bytes.find(part) != std::string::npos;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

MarkedText from(const MarkedText& text, size_t begin) {
  return part_of(text.bytes, text.runs, begin, text.bytes.size());
}

class Prober {
 public:
  explicit Prober(const TemplateSet& templates) : templates_(templates) {}

  Result<ChatTraits> probe() {
    if (Status s = find_roles(); !s.ok()) return s;
    find_turns();
    find_content();
    find_calls();
    return std::move(traits_);
  }

 private:
  Result<MarkedText> render(OrderedJson messages, bool prompt, bool tools = false,
                            OrderedJson variables = OrderedJson::object()) {
    if (limit_.is_over()) return Status(Code::kResourceExhausted, "the template takes too long");
    Conversation conversation;
    conversation.messages = std::move(messages);
    conversation.add_generation_prompt = prompt;
    conversation.variables = std::move(variables);
    if (tools) conversation.tools = OrderedJson::array({tool()});
    conversation.now.tm_mday = 1;
    return templates_.render(std::move(conversation));
  }

  Result<MarkedText> render_role(std::string_view role) {
    return render({message(role, kKind), message("user", "Hello?")}, true);
  }

  // Finds out which roles exist, and sets the history that other probes begin with.
  Status find_roles() {
    const Result<MarkedText> system = render_role("system");
    traits_.system = has(system, kKind);
    history_ = OrderedJson::array();
    if (system.ok()) history_.push_back(message("system", kKind));
    history_ = with(std::move(history_), {message("user", "Hello?"), message("assistant", "Yes?"),
                                          message("user", "Who?")});
    prompt_ = render(history_, true);
    if (!prompt_.ok()) return prompt_.status();
    const Result<MarkedText> developer = render_role("developer"), other = render_role(kOther);
    const bool is_any_role = other.ok() && developer.ok() &&
                             replaced(other->bytes, kOther, "developer") == developer->bytes;
    traits_.developer = has(developer, kKind) && !is_any_role;
    return {};
  }

  // Finds the text before and after an answer.
  void find_turns() {
    const std::string& prompt = prompt_->bytes;
    const size_t last = prompt.find_last_not_of(" \t\n\r\f\v");
    traits_.thinking_open = std::string_view(prompt).substr(0, last + 1).ends_with("<think>");
    const Result<MarkedText> history = render(history_, false);
    if (history.ok() && prompt.starts_with(history->bytes)) {
      traits_.generation_prompt = prompt.substr(history->bytes.size());
    }
    const Result<MarkedText> next = render_next(history_);
    if (!next.ok()) return;
    const auto after = after_answer(*next);
    if (after) traits_.after_answer = *after;
    traits_.history_begins_next = history.ok() && next->bytes.starts_with(history->bytes);
    traits_.prompt_and_answer_begin_next =
        next->bytes.starts_with(prompt + std::string(kProbeAnswer));
    const Result<MarkedText> other = render_next(OrderedJson::array({message("user", "x")}));
    const auto after_other = other.ok() ? after_answer(*other) : std::nullopt;
    traits_.follows_any_answer = after && after_other && after->bytes == after_other->bytes;
  }

  // Renders an answer to `history`, and the user's words after it.
  Result<MarkedText> render_next(const OrderedJson& history) {
    return render(with(history, {message("assistant", kProbeAnswer), message("user", kProbeUser)}),
                  true);
  }

  static std::optional<MarkedText> after_answer(const MarkedText& text) {
    const size_t answer = text.bytes.rfind(kProbeAnswer);
    if (answer == std::string::npos) return std::nullopt;
    return from(text, answer + kProbeAnswer.size());
  }

  void find_content() {
    const OrderedJson part = {{"type", "text"}, {"text", kProbeUser}};
    const OrderedJson in_parts = {{"role", "user"}, {"content", OrderedJson::array({part})}};
    const Result<MarkedText> parts = render(OrderedJson::array({in_parts}), true);
    traits_.takes_parts = has(parts, kProbeUser) && !has(parts, "'type'");
    const OrderedJson plain = OrderedJson::array({message("user", "x")});
    const Result<MarkedText> bare = render(plain, true), with_tools = render(plain, true, true);
    traits_.tools_change_prompt =
        with_tools.ok() && !(bare.ok() && bare->bytes == with_tools->bytes);
    const auto on = render(plain, true, false, {{"enable_thinking", true}});
    const auto off = render(plain, true, false, {{"enable_thinking", false}});
    traits_.thinking_switch =
        on.ok() != off.ok() || (on.ok() && off.ok() && on->bytes != off->bytes);
  }

  void find_calls() {
    OrderedJson calling = {{"role", "assistant"}};
    calling["tool_calls"] = OrderedJson::array({call()});
    traits_.call_without_content = written_call(calling);
    calling["content"] = "";
    traits_.call_with_empty_content = written_call(calling);
  }

  std::optional<std::string> written_call(const OrderedJson& calling) {
    const auto text = render({message("user", "x"), calling}, false, true);
    if (!text.ok()) return std::nullopt;
    const std::string& bytes = text->bytes;
    const size_t name = bytes.rfind(kProbeTool), value = bytes.rfind(kProbeValue);
    if (value == std::string::npos) return "";
    size_t begin = std::min(name, value);
    begin -= std::min(begin, kBytesBeforeCall);
    return from_character(bytes, begin);
  }

  // The end of a text, from the first whole character at or after `begin`.
  static std::string from_character(const std::string& text, size_t begin) {
    while (begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;
    return text.substr(begin);
  }

  const TemplateSet& templates_;
  WorkLimit limit_{kProbing};
  ChatTraits traits_;
  OrderedJson history_;
  Result<MarkedText> prompt_ = MarkedText();
};

}  // namespace

Result<ChatTraits> probe(const TemplateSet& templates) { return Prober(templates).probe(); }

}  // namespace runnel
