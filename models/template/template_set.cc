#include "models/template/template_set.h"

#include <utility>

namespace runnel {

Result<TemplateSet> TemplateSet::parse(const TemplateFiles& files) {
  Result<ChatTemplate> main = ChatTemplate::parse(files.source, files.name);
  if (!main.ok()) return main.status();
  TemplateSet set(std::move(*main));
  set.tokens_ = files.tokens;
  if (files.tool_source.empty()) return set;
  Result<ChatTemplate> tool = ChatTemplate::parse(files.tool_source, files.tool_name);
  if (!tool.ok()) return tool.status();
  set.tool_ = std::move(*tool);
  return set;
}

Result<MarkedText> TemplateSet::render(Conversation conversation, WorkLimit limit) const {
  conversation.tokens = tokens_;
  const bool has_tools = conversation.tools.is_array() && !conversation.tools.empty();
  return (has_tools && tool_ ? *tool_ : main_).render(conversation, limit);
}

}  // namespace runnel
