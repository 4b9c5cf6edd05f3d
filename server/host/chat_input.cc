#include "server/host/chat_input.h"

#include <ctime>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "models/template/limits.h"

namespace runnel {
namespace {

// The memory that a rendering may take whatever the body has.
constexpr int64_t kRenderingAnyway = jinja::kMaxValueBytes + jinja::kMaxOutputBytes + (64 << 10);
constexpr int64_t kTrees = 3;  // the body, the conversation, and its copy without the answer
// Stands for the end of a message that the answer continues: no text has these characters.
constexpr std::string_view kEndOfMessage = "\uE0F3end-of-message\uE0F3";

// The end of a rendering, as far as the template wrote it.
std::string_view end_of(const MarkedText& text) {
  if (text.runs.empty() || text.runs.back().writer != Writer::kTemplate) return {};
  const size_t from = text.runs.size() > 1 ? text.runs[text.runs.size() - 2].end : 0;
  return std::string_view(text.bytes).substr(from);
}

Result<MarkedText> render(const ChatFormat& format, Conversation conversation, bool continues,
                          TimePoint until) {
  conversation.add_generation_prompt = !continues;
  if (!continues) return format.render(std::move(conversation), until);
  OrderedJson& content = conversation.messages.back()["content"];
  OrderedJson& words = content.is_array() ? content.back()["text"] : content;
  words = words.get<std::string>() + std::string(kEndOfMessage);
  Result<MarkedText> text = format.render(std::move(conversation), until);
  if (!text.ok()) return text;
  const size_t end = text->bytes.rfind(kEndOfMessage);
  if (end == std::string::npos) {
    return invalid_argument("the template does not write the final message to its end");
  }
  MarkedText cut;
  cut.append(*text, 0, end);
  return cut;
}

// Without the values that come before a first turn.
Result<ChatPrompt> render_prompt(const ChatFormat& format, Conversation conversation,
                                 bool continues, TimePoint until) {
  const Result<MarkedText> text = render(format, std::move(conversation), continues, until);
  if (!text.ok()) return text.status();
  auto values = format.encode(*text, until);
  if (!values.ok()) return values.status();
  ChatPrompt prompt = {.values = std::move(*values),
                       .end = std::string(end_of(*text)),
                       .end_of_turn = format.end_of_turn()};
  if (!format.stop_text().empty()) prompt.stop_texts = {format.stop_text()};
  return prompt;
}

}  // namespace

int64_t rendering_bytes(int64_t body_bytes) {
  return kRenderingAnyway + (kTrees * kTreePerByte + jinja::kValueBytesPerInput) * body_bytes;
}

Status check_chats(const ServedModel& model, const std::string& asked) {
  if (model.chat != nullptr) return {};
  return not_found("model " + quote(name_for(asked, model)) +
                   " has no chat template: " + model.no_chat +
                   "; add chat_template.jinja to its directory, or send the prompt as a text in "
                   "the form that the model was trained on");
}

Result<ChatPrompt> prompt_of_chat(const ChatFormat& format, Conversation conversation,
                                  bool continues, bool fresh, TimePoint until) {
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &conversation.now);
  std::optional<Conversation> history;
  if (fresh && !continues) history = conversation;
  auto prompt = render_prompt(format, std::move(conversation), continues, until);
  if (!prompt.ok() || !fresh) return prompt;
  const std::vector<int32_t>& begin = format.begin();
  if (history) {
    prompt->shared =
        std::ssize(begin) + format.shared_with_next(std::move(*history), prompt->values, until);
  }
  prompt->values.insert(prompt->values.begin(), begin.begin(), begin.end());
  return prompt;
}

}  // namespace runnel
