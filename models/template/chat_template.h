// Chat templates, which turn a conversation into the text that a model was trained on
// (docs/chat.md). They are written in Jinja and rendered as transformers does, but they have no
// access to anything outside of the template.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/work_limit.h"
#include "models/text/marked_text.h"

namespace runnel {

namespace jinja {
struct Node;
}  // namespace jinja

// The input of a template.
struct Conversation {
  OrderedJson messages = OrderedJson::array();     // of objects, in the order of their members
  OrderedJson tools = nullptr;                     // null: none
  OrderedJson variables = OrderedJson::object();   // other variables, such as enable_thinking
  std::map<std::string, std::string> tokens = {};  // bos_token, eos_token and so on
  bool add_generation_prompt = false;
  std::tm now = {};  // the time that strftime_now formats
};

// Never changes, so any thread may render it.
class ChatTemplate {
 public:
  // Parses a template. INVALID_ARGUMENT names `name`, the line and the fault. RESOURCE_EXHAUSTED
  // does the same if a limit of limits.h is exceeded.
  static Result<ChatTemplate> parse(std::string_view source, const std::string& name);

  // The text of a conversation, with the writer of each byte. Null members of messages are left
  // out.
  // - INVALID_ARGUMENT if the template refuses the conversation or fails. An exception that the
  //   template raises is the whole message. For other failures the message names the template, its
  //   line and the reason.
  // - RESOURCE_EXHAUSTED if a limit of limits.h, or `limit`, is exceeded.
  Result<MarkedText> render(const Conversation& conversation, WorkLimit limit = WorkLimit()) const;

  const std::string& name() const { return name_; }

 private:
  ChatTemplate() = default;

  std::string name_;
  std::shared_ptr<const std::vector<jinja::Node>> nodes_;
};

}  // namespace runnel
