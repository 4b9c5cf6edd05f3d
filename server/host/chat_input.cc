#include "server/host/chat_input.h"

#include <algorithm>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/fields.h"
#include "base/text.h"
#include "models/template/limits.h"

namespace runnel {
namespace {

// The memory that a rendering may take, whatever the size of the body.
constexpr int64_t kRenderingAnyway = jinja::kMaxValueBytes + jinja::kMaxOutputBytes + (64 << 10);
constexpr int64_t kTrees = 3;  // the body, the conversation, and its copy without the answer
// Marks the end of a message that the answer continues. No text contains these characters.
constexpr std::string_view kEndOfMessage = "\uE0F3end-of-message\uE0F3";

// The end of a rendering, if the template wrote it.
std::string_view end_of(const MarkedText& text) {
  if (text.runs.empty() || text.runs.back().writer != Writer::kTemplate) return {};
  const size_t from = text.runs.size() > 1 ? text.runs[text.runs.size() - 2].end : 0;
  return std::string_view(text.bytes).substr(from);
}

// ChatFormat::render() of all messages, or ChatFormat::render_next() of new ones.
using Rendering = Result<MarkedText> (ChatFormat::*)(Conversation, WorkLimit) const;

Result<MarkedText> render(const ChatFormat& format, Rendering rendering, Conversation conversation,
                          bool continues, WorkLimit limit) {
  conversation.add_generation_prompt = !continues;
  if (!continues) return (format.*rendering)(std::move(conversation), limit);
  OrderedJson& content = conversation.messages.back()["content"];
  OrderedJson& words = content.is_array() ? content.back()["text"] : content;
  words = words.get<std::string>() + std::string(kEndOfMessage);
  Result<MarkedText> text = (format.*rendering)(std::move(conversation), limit);
  if (!text.ok()) return text;
  const size_t end = text->bytes.rfind(kEndOfMessage);
  if (end == std::string::npos) {
    return invalid_argument("the template does not write the final message to its end");
  }
  MarkedText cut;
  cut.append(*text, 0, end);
  return cut;
}

// A prompt without values.
ChatPrompt prompt_ending_in(const ChatFormat& format, const MarkedText& text) {
  ChatPrompt prompt = {
      .values = {}, .end = std::string(end_of(text)), .end_of_turn = format.end_of_turn()};
  if (!format.stop_text().empty()) prompt.stop_texts = {format.stop_text()};
  return prompt;
}

// Renders without the values that come before a first turn.
Result<ChatPrompt> render_prompt(const ChatFormat& format, Conversation conversation,
                                 bool continues, WorkLimit limit) {
  const Result<MarkedText> text =
      render(format, &ChatFormat::render, std::move(conversation), continues, limit);
  if (!text.ok()) return text.status();
  auto values = format.encode(*text, limit);
  if (!values.ok()) return values.status();
  ChatPrompt prompt = prompt_ending_in(format, *text);
  prompt.values = std::move(*values);
  return prompt;
}

// --- Turns on sessions ---

bool is_turn(ChatStart start) { return start == ChatStart::kSession || start == ChatStart::kToken; }

// The words with which an error names what new messages are added to.
std::string noun_of(ChatStart start) {
  return start == ChatStart::kToken ? "the conversation of the state token" : "the session";
}

std::string_view field_of(ChatStart start) {
  return start == ChatStart::kToken ? fields::kToken : fields::kSession;
}

Status not_after_an_answer(const Status& status, ChatStart start) {
  return invalid_argument(place_of(fields::kMessages) + " cannot follow the last answer of " +
                          noun_of(start) + ": " + status.raw_message() +
                          "; send the whole conversation without " + place_of(field_of(start)));
}

Status only_after_an_answer(const Status& status, ChatStart start) {
  return invalid_argument(place_of(fields::kMessages) + " cannot begin " + noun_of(start) +
                          ", which is empty: " + status.raw_message());
}

// The values of new messages after an answer. `text` begins with the end of that answer.
Result<NextTurn> turn_of(const ChatFormat& format, const MarkedText& text, WorkLimit limit) {
  auto values = format.encode(text, limit);
  if (!values.ok()) return values.status();
  NextTurn turn = {.values = std::move(*values), .end_of_turn = format.end_of_turn()};
  // The messages begin after the template's own text.
  const bool begins = !text.runs.empty() && text.runs.front().writer == Writer::kTemplate;
  const size_t own = begins ? text.runs.front().end : 0;
  if (const auto end = format.end_of_turn()) {
    const auto before = format.encode(part_of(text.bytes, text.runs, 0, own), limit);
    if (!before.ok()) return before.status();
    const auto found = std::ranges::find(turn.values, *end);
    if (std::ranges::count(*before, *end) > 0) turn.end = found + 1 - turn.values.begin();
    return turn;
  }
  const std::string& stop = format.stop_text();
  if (stop.empty() || stop.size() > own || !text.bytes.starts_with(stop)) return turn;
  auto after = format.encode(part_of(text.bytes, text.runs, stop.size(), text.bytes.size()), limit);
  if (!after.ok()) return after.status();
  turn.stop_text = stop;
  turn.after_stop = std::move(*after);
  return turn;
}

}  // namespace

int64_t rendering_bytes(int64_t body_bytes) {
  return kRenderingAnyway + (kTrees * kTreePerByte + jinja::kValueBytesPerInput) * body_bytes;
}

Status check_chats(const ServedModel& model, const std::string& asked) {
  if (model.chat != nullptr) return {};
  return not_found("model " + quote(name_for(asked, model)) +
                   " has no chat template: " + model.no_chat +
                   "; name one to the server (--chat-template NAME=FILE), or send the prompt as a "
                   "text in the form that the model was trained on");
}

Status check_turns(const ServedModel& model, const std::string& asked, ChatStart start) {
  if (!is_turn(start) || model.chat->traits().follows_any_answer) return {};
  const std::string_view field = field_of(start);
  return invalid_argument(place_of(field) + " is set, but the chat template of model " +
                          quote(name_for(asked, model)) +
                          " writes new messages in a way that depends on earlier ones; send the "
                          "whole conversation without " +
                          place_of(field));
}

void set_now(Conversation& conversation, int64_t unix_time) {
  const std::time_t now = unix_time;
  localtime_r(&now, &conversation.now);
}

Result<ChatPrompt> prompt_of_chat(const ChatFormat& format, Conversation conversation,
                                  bool continues, bool fresh, WorkLimit limit) {
  std::optional<Conversation> history;
  if (fresh && !continues) history = conversation;
  auto prompt = render_prompt(format, std::move(conversation), continues, limit);
  if (!prompt.ok() || !fresh) return prompt;
  const std::vector<int32_t>& begin = format.begin();
  if (history) {
    prompt->shared =
        std::ssize(begin) + format.shared_with_next(std::move(*history), prompt->values, limit);
  }
  prompt->values.insert(prompt->values.begin(), begin.begin(), begin.end());
  return prompt;
}

Status check_later(const Conversation& news, ChatStart start) {
  const std::string begun = ", but " + noun_of(start) + " has begun: ";
  const auto is_system = [](const OrderedJson& message) {
    return message["role"] == "system" || message["role"] == "developer";
  };
  const auto system = std::ranges::find_if(news.messages, is_system);
  if (system != news.messages.end()) {
    return invalid_argument(place_of(fields::kMessages) + " has a message of the role " +
                            quote((*system)["role"].get<std::string>()) + begun +
                            "send it with the first messages");
  }
  if (news.tools.is_null()) return {};
  return invalid_argument(place_of(fields::kTools) + " is set" + begun +
                          "it has read its tools with its first messages; leave " +
                          place_of(fields::kTools) + " out");
}

Result<ChatPrompt> prompt_of_turn(const ChatFormat& format, Conversation news, bool continues,
                                  ChatStart start, WorkLimit limit) {
  auto first = render_prompt(format, news, continues, limit);
  if (first.ok()) {
    const std::vector<int32_t>& begin = format.begin();
    first->values.insert(first->values.begin(), begin.begin(), begin.end());
  }
  if (Status s = check_later(news, start); !s.ok()) {
    if (first.ok()) first->turn = NextTurn{.later = std::move(s)};
    return first;
  }
  const auto text = render(format, &ChatFormat::render_next, std::move(news), continues, limit);
  auto turn = text.ok() ? turn_of(format, *text, limit) : text.status();
  if (!turn.ok() && !first.ok()) return first;
  if (!turn.ok()) {
    first->turn = NextTurn{.later = not_after_an_answer(turn.status(), start)};
    return first;
  }
  ChatPrompt prompt = first.ok() ? std::move(*first) : prompt_ending_in(format, *text);
  if (!first.ok()) turn->at_start = only_after_an_answer(first.status(), start);
  prompt.turn = std::move(*turn);
  return prompt;
}

Result<ChatPrompt> prompt_of_call(const ChatFormat& format, Conversation conversation,
                                  bool continues, ChatStart start, WorkLimit limit) {
  auto prompt = is_turn(start)
                    ? prompt_of_turn(format, std::move(conversation), continues, start, limit)
                    : prompt_of_chat(format, std::move(conversation), continues,
                                     start == ChatStart::kFresh, limit);
  if (prompt.ok()) return prompt;
  return invalid_argument(place_of(fields::kMessages) + ": " + prompt.status().raw_message());
}

}  // namespace runnel
