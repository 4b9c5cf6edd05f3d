// Chat templates: a conversation becomes the text that a model was trained on (docs/chat.md).
// Templates are Jinja, as transformers renders it, without anything that reaches out of them.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "models/text/marked_text.h"

namespace runnel {

namespace jinja {
struct Node;
}  // namespace jinja

// What a template renders.
struct Conversation {
  OrderedJson messages = OrderedJson::array();     // of objects, in the order of their members
  OrderedJson tools = nullptr;                     // null: none
  OrderedJson variables = OrderedJson::object();   // further ones, such as enable_thinking
  std::map<std::string, std::string> tokens = {};  // bos_token, eos_token and so on
  bool add_generation_prompt = false;
  std::tm now = {};  // what strftime_now tells
};

// Never changes once made: any thread may render it.
class ChatTemplate {
 public:
  // Parses a template. INVALID_ARGUMENT names `name`, the line and what is wrong;
  // RESOURCE_EXHAUSTED the same for a limit of limits.h.
  static Result<ChatTemplate> parse(std::string_view source, const std::string& name);

  // The text of a conversation, with who wrote its bytes. Members of messages that are null are
  // left out. INVALID_ARGUMENT where the template refuses or fails: what it raises is the whole
  // message, other failures name the template, its line and the reason. RESOURCE_EXHAUSTED beyond
  // a limit of limits.h, or past `until`.
  Result<MarkedText> render(const Conversation& conversation,
                            TimePoint until = TimePoint::max()) const;

  const std::string& name() const { return name_; }

 private:
  ChatTemplate() = default;

  std::string name_;
  std::shared_ptr<const std::vector<jinja::Node>> nodes_;
};

}  // namespace runnel
