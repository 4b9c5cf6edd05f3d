#include "models/template/conversation.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace runnel {
namespace {

constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                       "assistant", "tool",      "function"};

int64_t bytes_in(const OrderedJson& json) {
  constexpr int64_t kEach = 8;
  if (json.is_string()) return kEach + std::ssize(json.get_ref<const std::string&>());
  int64_t bytes = kEach;
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) bytes += std::ssize(key) + bytes_in(value);
  } else if (json.is_array()) {
    for (const OrderedJson& value : json) bytes += bytes_in(value);
  }
  return bytes;
}

jinja::Value number_of(const OrderedJson& json) {
  const bool large =
      json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (json.is_number_float() || large) return jinja::Value::of(json.get<double>());
  return jinja::Value::of(json.get<int64_t>());
}

jinja::Value value_of(jinja::Runtime& run, const OrderedJson& json, Writer writer) {
  run.budget().spend(1);
  if (json.is_string()) return run.text(json.get_ref<const std::string&>(), writer);
  if (json.is_boolean()) return jinja::Value::of(json.get<bool>());
  if (json.is_number()) return number_of(json);
  if (json.is_array()) {
    std::vector<jinja::Value> items;
    for (const OrderedJson& item : json) items.push_back(value_of(run, item, writer));
    return run.list(std::move(items));
  }
  if (json.is_object()) {
    std::vector<std::pair<jinja::Value, jinja::Value>> members;
    for (const auto& [key, value] : json.items()) {
      members.emplace_back(run.text(key, writer), value_of(run, value, writer));
    }
    return run.dict(std::move(members));
  }
  return jinja::Value::none();
}

bool is_assistant(const OrderedJson& message) {
  const auto role = message.find("role");
  return role != message.end() && *role == "assistant";
}

// A message in the form that transformers gives to templates: without null members, and with its
// thinking under both names that templates use.
jinja::Value message_of(jinja::Runtime& run, const OrderedJson& message) {
  if (!message.is_object()) return value_of(run, message, Writer::kInput);
  const Writer writer = is_assistant(message) ? Writer::kAnswer : Writer::kInput;
  std::vector<std::pair<jinja::Value, jinja::Value>> members;
  const OrderedJson* thinking = nullptr;
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const auto found = message.find(name);
    if (thinking == nullptr && found != message.end() && !found->is_null()) thinking = &*found;
  }
  for (const auto& [key, value] : message.items()) {
    if (value.is_null()) continue;
    const bool usual =
        key == "role" && value.is_string() &&
        std::ranges::find(kRoles, value.get_ref<const std::string&>()) != std::end(kRoles);
    members.emplace_back(run.text(key, writer),
                         value_of(run, value, usual ? Writer::kTemplate : writer));
  }
  for (const char* name : {"reasoning_content", "thinking"}) {
    const auto found = message.find(name);
    const bool there = found != message.end() && !found->is_null();
    if (thinking == nullptr || there) continue;
    members.emplace_back(run.text(name, writer), value_of(run, *thinking, writer));
  }
  return run.dict(std::move(members));
}

}  // namespace

int64_t bytes_of(const Conversation& conversation) {
  return bytes_in(conversation.messages) + bytes_in(conversation.tools) +
         bytes_in(conversation.variables);
}

std::vector<std::pair<std::string, jinja::Value>> variables_of(jinja::Runtime& run,
                                                               const Conversation& conversation) {
  std::vector<std::pair<std::string, jinja::Value>> variables;
  for (const auto& [name, token] : conversation.tokens) {
    variables.emplace_back(name, run.text(token, Writer::kTemplate));
  }
  for (const auto& [name, value] : conversation.variables.items()) {
    variables.emplace_back(name, value_of(run, value, Writer::kInput));
  }
  std::vector<jinja::Value> messages;
  for (const OrderedJson& message : conversation.messages) {
    messages.push_back(message_of(run, message));
  }
  variables.emplace_back("messages", run.list(std::move(messages)));
  variables.emplace_back("tools", value_of(run, conversation.tools, Writer::kInput));
  const auto documents = conversation.variables.find("documents");
  if (documents == conversation.variables.end()) {
    variables.emplace_back("documents", jinja::Value::none());
  }
  variables.emplace_back("add_generation_prompt",
                         jinja::Value::of(conversation.add_generation_prompt));
  return variables;
}

}  // namespace runnel
