#include "server/host/chat_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/ordered_json.h"
#include "base/text.h"
#include "server/host/json_members.h"

namespace runnel {
namespace {

constexpr size_t kMaxTools = 128;
constexpr size_t kMaxVariables = 64;
constexpr size_t kMaxVariableName = 64;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};
// The members of a message for templates. Some templates use a user's `name`.
constexpr std::array<std::string_view, 8> kKnown = {
    "role",         "content",           "name",      "tool_calls",
    "tool_call_id", "reasoning_content", "reasoning", "thinking"};
constexpr std::array<std::string_view, 1> kTextPart = {"text"};
constexpr std::array<std::string_view, 5> kOfPart = {"type", "text", "cache_control", "annotations",
                                                     "logprobs"};
// Answers contain these members, so clients send them back. Templates do not use them.
constexpr std::array<std::string_view, 3> kDropped = {"refusal", "annotations", "audio"};

// Names that a template already has for other things.
constexpr std::array<std::string_view, 13> kReserved = {"messages",
                                                        "tools",
                                                        "documents",
                                                        "chat_template",
                                                        "add_generation_prompt",
                                                        "continue_final_message",
                                                        "namespace",
                                                        "raise_exception",
                                                        "strftime_now",
                                                        "range",
                                                        "dict",
                                                        "loop",
                                                        "caller"};

Fault read_content(OrderedJson& message, const std::string& at, bool required) {
  OrderedJson* const content = member(message, "content");
  if (content != nullptr && content->is_array()) {
    return read_parts(*content, at + ".content", kTextPart);
  }
  return check_text(content, at + ".content", required);
}

Fault read_call(OrderedJson& call, const std::string& at) {
  if (!call.is_object()) return refusal(at, "is " + shown(call) + "; expected an object");
  const OrderedJson* const type = member(call, "type");
  if (type != nullptr && *type != "function") {
    return refusal(at + ".type", "is " + shown(*type) + "; expected 'function'");
  }
  if (Fault f = check_text(member(call, "id"), at + ".id", false); !f.ok()) return f;
  OrderedJson* const function = member(call, "function");
  if (function == nullptr || !function->is_object()) {
    return refusal(at + ".function", "must be an object");
  }
  for (const auto& [key, value] : call.items()) {
    if (key != "type" && key != "id" && key != "function" && key != "index") {
      return unknown_member(at, key);
    }
  }
  for (const auto& [key, value] : function->items()) {
    if (key != "name" && key != "arguments") return unknown_member(at + ".function", key);
  }
  if (Fault f = check_text(member(*function, "name"), at + ".function.name", true); !f.ok()) {
    return f;
  }
  return read_arguments(*function, at + ".function.arguments");
}

Fault read_calls_of(OrderedJson& message, const std::string& at) {
  OrderedJson* const calls = member(message, "tool_calls");
  if (calls == nullptr) return {};
  if (message["role"] != "assistant") return refusal(at, "is for the assistant's messages");
  if (!calls->is_array()) return refusal(at, "is " + shown(*calls) + "; expected a list");
  for (size_t i = 0; i < calls->size(); ++i) {
    if (Fault f = read_call((*calls)[i], at + "[" + std::to_string(i) + "]"); !f.ok()) return f;
  }
  return {};
}

// Drops members that templates do not use, and nulls. Refuses unknown members.
Fault read_members(OrderedJson& message, const std::string& at) {
  OrderedJson kept = OrderedJson::object();
  auto& members = kept.get_ref<OrderedJson::object_t&>();
  for (auto& [key, value] : message.get_ref<OrderedJson::object_t&>()) {
    if (std::ranges::count(kKnown, key) > 0) {
      const bool empty = key == "tool_calls" && value.empty();
      if (!value.is_null() && !empty) members.emplace_back(key, std::move(value));
    } else if (std::ranges::count(kDropped, key) == 0 && !value.is_null()) {
      return unknown_member(at, key);
    }
  }
  message = std::move(kept);
  return {};
}

// Clients send thinking back under one of three names. Most templates use the first.
void name_thinking(OrderedJson& message) {
  if (message.contains("reasoning_content")) return;
  for (const char* const key : {"reasoning", "thinking"}) {
    if (!message.contains(key)) continue;
    message["reasoning_content"] = OrderedJson(message[key]);
    return;
  }
}

Fault read_message(OrderedJson& message, const std::string& at) {
  if (!message.is_object()) return refusal(at, "is " + shown(message) + "; expected an object");
  OrderedJson* const role = member(message, "role");
  if (role == nullptr || !role->is_string() ||
      std::ranges::count(kRoles, role->get_ref<const std::string&>()) == 0) {
    return refusal(at + ".role",
                   (role == nullptr ? "is not set" : "is " + shown(*role)) +
                       "; expected 'system', 'developer', 'user', 'assistant' or 'tool'");
  }
  const bool is_null = message.contains("content") && message["content"].is_null();
  const bool may_lack = is_null || *role == "assistant";
  if (Fault f = read_members(message, at); !f.ok()) return f;
  if (Fault f = read_content(message, at, !may_lack); !f.ok()) return f;
  for (const char* const key :
       {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) {
    if (Fault f = check_text(member(message, key), at + "." + key, false); !f.ok()) return f;
  }
  name_thinking(message);
  return read_calls_of(message, at + ".tool_calls");
}

Fault read_tool(OrderedJson tool, const std::string& at) {
  if (Fault f = check_tool_type(tool, at); !f.ok()) return f;
  OrderedJson* const function = member(tool, "function");
  if (function == nullptr || !function->is_object()) {
    return refusal(at + ".function", "must be an object");
  }
  return check_function(*function, at + ".function");
}

bool names_variable(const std::string& name) {
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kMaxVariableName && (name[0] < '0' || name[0] > '9') &&
         std::ranges::all_of(name, is_part) && !name.ends_with("_token") &&
         std::ranges::count(kReserved, name) == 0;
}

}  // namespace

Fault read_parts(OrderedJson& content, const std::string& at,
                 std::span<const std::string_view> types) {
  OrderedJson parts = OrderedJson::array();
  for (size_t i = 0; i < content.size(); ++i) {
    OrderedJson& part = content[i];
    const std::string where = at + "[" + std::to_string(i) + "]";
    if (!part.is_object()) return refusal(where, "is " + shown(part) + "; expected an object");
    const OrderedJson* const type = member(part, "type");
    if (!is_one_of(type, types)) {
      return refusal(where + ".type", (type == nullptr ? "is not set" : "is " + shown(*type)) +
                                          "; this server reads text: send parts of type '" +
                                          std::string(types.front()) + "'");
    }
    if (Fault f = check_members(part, where, kOfPart); !f.ok()) return f;
    OrderedJson* const text = member(part, "text");
    if (Fault f = check_text(text, where + ".text", true); !f.ok()) return f;
    parts.push_back({{"type", "text"}, {"text", std::move(*text)}});
  }
  content = parts.empty() ? OrderedJson("") : std::move(parts);
  return {};
}

// Arguments are JSON as text in OpenAI's API; templates take the object.
Fault read_arguments(OrderedJson& function, const std::string& at) {
  OrderedJson* const arguments = member(function, "arguments");
  if (arguments == nullptr) {
    function["arguments"] = OrderedJson::object();
    return {};
  }
  if (arguments->is_string()) {
    const std::string text = arguments->get<std::string>();
    const int64_t bytes = std::ssize(text);
    Result<OrderedJson> json = parse_ordered_json(text, "", {bytes, bytes, kSchemaDepth});
    if (text.empty()) json = OrderedJson::object();
    if (!json.ok()) return refusal(at, "is no JSON object" + json.status().message());
    *arguments = std::move(*json);
  }
  if (arguments->is_object()) return {};
  return refusal(at, "is " + shown(*arguments) + "; expected a JSON object, as text");
}

Fault check_tool_list(const OrderedJson& tools) {
  if (!tools.is_array()) return refusal("tools", "is " + shown(tools) + "; expected a list");
  if (tools.size() <= kMaxTools) return {};
  return refusal("tools", "has " + std::to_string(tools.size()) + " tools; at most " +
                              std::to_string(kMaxTools) + " are allowed");
}

Fault check_tool_type(OrderedJson& tool, const std::string& at) {
  if (!tool.is_object()) return refusal(at, "is " + shown(tool) + "; expected an object");
  const OrderedJson* const type = member(tool, "type");
  if (type != nullptr && *type == "function") return {};
  return refusal(at + ".type",
                 (type == nullptr ? "is not set" : "is " + shown(*type)) + "; expected 'function'");
}

Fault check_function(OrderedJson& function, const std::string& at) {
  if (Fault f = check_text(member(function, "name"), at + ".name", true); !f.ok()) return f;
  if (Fault f = check_text(member(function, "description"), at + ".description", false); !f.ok()) {
    return f;
  }
  const OrderedJson* const schema = member(function, "parameters");
  if (schema != nullptr && !schema->is_object()) {
    return refusal(at + ".parameters", "is " + shown(*schema) + "; expected an object");
  }
  const OrderedJson* const strict = member(function, "strict");
  if (strict == nullptr || *strict == false) return {};
  return refusal(at + ".strict", "is not supported here; leave it out, or send false");
}

Fault read_messages(OrderedJson& messages) {
  const std::string at = "messages";
  if (!messages.is_array()) return refusal(at, "is " + shown(messages) + "; expected a list");
  if (messages.empty()) return refusal(at, "is empty; send at least one message");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (Fault f = read_message(messages[i], at + "[" + std::to_string(i) + "]"); !f.ok()) return f;
  }
  return {};
}

Fault read_tools(const OrderedJson& tools) {
  const std::string at = "tools";
  if (Fault f = check_tool_list(tools); !f.ok()) return f;
  for (size_t i = 0; i < tools.size(); ++i) {
    if (Fault f = read_tool(tools[i], at + "[" + std::to_string(i) + "]"); !f.ok()) return f;
  }
  return {};
}

Fault check_variables(const OrderedJson& variables, const std::string& at) {
  if (!variables.is_object()) return refusal(at, "must be an object");
  if (variables.size() > kMaxVariables) {
    return refusal(at, "has " + std::to_string(variables.size()) + " members; at most " +
                           std::to_string(kMaxVariables) + " are allowed");
  }
  for (const auto& [name, value] : variables.items()) {
    const std::string member = at + "." + (name.empty() ? "''" : printable(name, kMaxVariableName));
    if (!names_variable(name)) {
      return refusal(member, "is not a variable that a request may set; leave it out");
    }
    if (value.is_structured()) {
      return refusal(member,
                     "is " + shown(value) + "; expected a text, a number, true, false or null");
    }
  }
  return {};
}

Fault check_continues(const OrderedJson& messages, const std::string& at) {
  if (!messages.is_array() || messages.empty()) return {};
  const OrderedJson& last = messages.back();
  const bool is_answer = last.is_object() && last.contains("role") && last["role"] == "assistant";
  if (is_answer && last.contains("content") && !last.contains("tool_calls")) return {};
  return refusal(at, "is for a last message of the assistant that has a text and no calls");
}

}  // namespace runnel
