#include "models/template/chat_template.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "models/template/conversation.h"
#include "models/template/interpreter.h"
#include "models/template/parser.h"

namespace runnel {
namespace {

constexpr size_t kMostRaised = 1000;  // bytes of a message that a template raises

Status status_of(const jinja::Fault& fault, const std::string& name) {
  if (fault.kind == jinja::FaultKind::kRaised) {
    // It may contain texts of the conversation, of any length, even with the characters that mark
    // fields.
    std::string message = fault.message.substr(0, kMostRaised);
    message.resize(valid_utf8_prefix(message));
    std::erase_if(message, [](char c) { return c == '\x1e' || c == '\x1f'; });
    return invalid_argument(std::move(message));
  }
  const std::string line = fault.line > 0 ? ", line " + std::to_string(fault.line) : "";
  return {
      fault.kind == jinja::FaultKind::kLimit ? Code::kResourceExhausted : Code::kInvalidArgument,
      name + line + ": " + fault.message};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& name) {
  try {
    ChatTemplate made;
    made.name_ = name;
    made.nodes_ = std::make_shared<const std::vector<jinja::Node>>(jinja::parse(source));
    return made;
  } catch (const jinja::Fault& fault) {
    return status_of(fault, name);
  }
}

Result<MarkedText> ChatTemplate::render(const Conversation& conversation, WorkLimit limit) const {
  jinja::Budget budget(jinja::kMaxValueBytes + jinja::kValueBytesPerInput * bytes_of(conversation),
                       limit);
  try {
    jinja::Runtime run(budget, conversation.now);
    jinja::Interpreter interpreter(run, variables_of(run, conversation));
    return interpreter.run(*nodes_);
  } catch (const jinja::Fault& fault) {
    return status_of(fault, name_);
  }
}

}  // namespace runnel
