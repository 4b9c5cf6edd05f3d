#include "server/grpc/conversation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/field.h"
#include "base/fields.h"
#include "base/ordered_json.h"
#include "server/host/chat_input.h"
#include "server/host/chat_messages.h"
#include "server/host/json_members.h"

namespace runnel {
namespace {

constexpr int kToolDepth = kSchemaDepth + 2;  // a schema is in a tool and its function

std::string item(const std::string& at, int index) {
  return at + "[" + std::to_string(index) + "]";
}

// Also reads the arguments, because a later check of the messages would name another path for them.
Fault add_calls(const v1::ChatMessage& message, const std::string& at, OrderedJson& made) {
  for (int i = 0; i < message.tool_calls_size(); ++i) {
    const v1::ToolCall& call = message.tool_calls(i);
    const std::string where = item(at + ".tool_calls", i);
    if (call.name().empty()) return refusal(where + ".name", "is not set; expected a text");
    OrderedJson function = {{"name", call.name()}, {"arguments", call.arguments()}};
    if (Fault f = read_arguments(function, where + ".arguments"); !f.ok()) return f;
    OrderedJson added = OrderedJson::object();
    if (!call.id().empty()) added["id"] = call.id();
    added["type"] = "function";
    added["function"] = std::move(function);
    made["tool_calls"].push_back(std::move(added));
  }
  return {};
}

Fault add_message(const v1::ChatMessage& message, const std::string& at, OrderedJson& messages) {
  OrderedJson made = OrderedJson::object();
  made["role"] = message.role();
  if (message.has_content()) made["content"] = message.content();
  const auto add = [&made](const char* key, const std::string& text) {
    if (!text.empty()) made[key] = text;
  };
  add("reasoning_content", message.reasoning());
  add("tool_call_id", message.tool_call_id());
  add("name", message.name());
  Fault fault = add_calls(message, at, made);
  messages.push_back(std::move(made));
  return fault;
}

Fault read_tool_texts(const v1::Conversation& message, OrderedJson& tools) {
  if (message.tools().empty()) return {};
  tools = OrderedJson::array();
  for (int i = 0; i < message.tools_size(); ++i) {
    const std::string& text = message.tools(i);
    const int64_t bytes = std::ssize(text);
    Result<OrderedJson> json = parse_ordered_json(text, "", {bytes, bytes, kToolDepth});
    if (!json.ok()) return refusal(item("tools", i), "is no JSON object" + json.status().message());
    tools.push_back(std::move(*json));
  }
  return read_tools(tools);
}

OrderedJson json_of(const v1::TemplateVariable& variable) {
  switch (variable.value_case()) {
    case v1::TemplateVariable::kText:
      return variable.text();
    case v1::TemplateVariable::kInteger:
      return variable.integer();
    case v1::TemplateVariable::kNumber:
      return variable.number();
    case v1::TemplateVariable::kFlag:
      return variable.flag();
    case v1::TemplateVariable::VALUE_NOT_SET:
      break;
  }
  return nullptr;
}

Fault read_variables(const v1::Conversation& message, OrderedJson& variables) {
  auto& members = variables.get_ref<OrderedJson::object_t&>();
  for (const v1::TemplateVariable& variable : message.variables()) {
    members.emplace_back(variable.name(), json_of(variable));
  }
  if (Fault f = check_variables(variables, "variables"); !f.ok()) return f;
  std::set<std::string_view> names;
  for (const v1::TemplateVariable& variable : message.variables()) {
    const std::string at = "variables." + variable.name();
    if (!names.insert(variable.name()).second) return refusal(at, "is there twice; send one");
    if (std::isfinite(variable.number())) continue;
    return refusal(at, "is not a number; expected a finite one");
  }
  return {};
}

Fault read_conversation(const v1::Conversation& message, Conversation& made) {
  for (int i = 0; i < message.messages_size(); ++i) {
    Fault fault = add_message(message.messages(i), item("messages", i), made.messages);
    if (!fault.ok()) return fault;
  }
  if (Fault f = read_messages(made.messages); !f.ok()) return f;
  if (Fault f = read_tool_texts(message, made.tools); !f.ok()) return f;
  if (Fault f = read_variables(message, made.variables); !f.ok()) return f;
  return message.continues() ? check_continues(made.messages, "continues") : Fault();
}

// `fault.param` is the path of a member, for example `messages[1].content`. Its first part becomes
// a placeholder (base/field.h), since gRPC and HTTP use different words for it.
Status status_of(const Fault& fault) {
  const std::string& path = fault.param;
  const size_t end = std::min(path.find_first_of(".["), path.size());
  return invalid_argument(place_of("conversation." + path.substr(0, end)) +
                          fault.status.message().substr(end));
}

ChatStart chat_start_of(const v1::GenerateRequest& message) {
  switch (message.origin().origin_case()) {
    case v1::Origin::kSession:
      return ChatStart::kSession;
    case v1::Origin::kToken:
      return ChatStart::kToken;
    case v1::Origin::kState:
      return ChatStart::kState;
    case v1::Origin::ORIGIN_NOT_SET:
      break;
  }
  return ChatStart::kFresh;
}

}  // namespace

Result<Conversation> conversation_of(const v1::Conversation& message) {
  Conversation conversation;
  const Fault fault = read_conversation(message, conversation);
  if (!fault.ok()) return status_of(fault);
  return conversation;
}

Status set_conversation(const v1::GenerateRequest& message, const ServedModel& model,
                        ServerContext& state, GenerateRequest& request) {
  const v1::Conversation& given = message.conversation();
  if (Status s = check_chats(model, message.model()); !s.ok()) return s;
  const ChatStart start = chat_start_of(message);
  if (Status s = check_turns(model, message.model(), start); !s.ok()) return s;
  const auto room = state.memory.take(rendering_bytes(static_cast<int64_t>(given.ByteSizeLong())));
  if (!room.ok()) return room.status();
  auto conversation = conversation_of(given);
  if (!conversation.ok()) return conversation.status();
  set_now(*conversation, state.clock.unix_time());
  auto prompt =
      prompt_of_call(*model.chat, std::move(*conversation), given.continues(), start, WorkLimit());
  if (!prompt.ok()) return prompt.status();
  if (!message.has_max_values()) request.max_values = state.chat_values;
  request.prompt = std::move(prompt->values);
  request.shared = prompt->shared;
  request.turn = std::move(prompt->turn);
  if (request.ignore_eos) return {};
  request.end_of_turn = prompt->end_of_turn;
  std::ranges::move(prompt->stop_texts, std::back_inserter(request.stop_text));
  return {};
}

}  // namespace runnel
