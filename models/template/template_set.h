// The templates of one model: one for conversations, and optionally one for conversations with
// tools.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/work_limit.h"
#include "models/template/chat_template.h"

namespace runnel {

// The contents of a set (load_template.h).
struct TemplateFiles {
  std::string source;  // of the template
  std::string name;    // of its file, or "rwkv7-g1"
  std::string tool_source = {},
              tool_name = {};  // of the template for requests with tools; "": none
  std::map<std::string, std::string> tokens = {};  // bos_token and so on
  std::vector<int32_t> begin = {};                 // values before the first turn
};

// Never changes, so any thread may use it.
class TemplateSet {
 public:
  // Errors are those of ChatTemplate::parse().
  static Result<TemplateSet> parse(const TemplateFiles& files);

  // The text of a conversation, as the Python library transformers renders it. If the conversation
  // has tools and there is a template for tools, that template is used. The model's tokens replace
  // `conversation.tokens`. Errors are those of ChatTemplate::render().
  Result<MarkedText> render(Conversation conversation, WorkLimit limit = WorkLimit()) const;

  // The name of the template's file, or "rwkv7-g1".
  const std::string& name() const { return main_.name(); }

 private:
  explicit TemplateSet(ChatTemplate main) : main_(std::move(main)) {}

  ChatTemplate main_;
  std::optional<ChatTemplate> tool_;
  std::map<std::string, std::string> tokens_;
};

}  // namespace runnel
