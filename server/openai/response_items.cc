#include "server/openai/response_items.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "server/host/chat_messages.h"
#include "server/host/json_members.h"

namespace runnel {
namespace {

using Keys = std::string_view;

constexpr std::array kRoles = {Keys("user"), Keys("assistant"), Keys("system"), Keys("developer")};
constexpr std::array kParts = {Keys("input_text"), Keys("output_text"), Keys("text")};
constexpr std::array kReasoning = {Keys("reasoning_text"), Keys("summary_text")};
constexpr std::array kOfMessage = {Keys("type"), Keys("id"),    Keys("status"),
                                   Keys("role"), Keys("phase"), Keys("content")};
constexpr std::array kOfCall = {Keys("type"),    Keys("id"),   Keys("status"),
                                Keys("call_id"), Keys("name"), Keys("arguments")};
constexpr std::array kOfOutput = {Keys("type"), Keys("id"), Keys("status"), Keys("call_id"),
                                  Keys("output")};
constexpr std::array kOfReasoning = {Keys("type"), Keys("id"), Keys("status"), Keys("summary"),
                                     Keys("content")};
constexpr std::array kOfTool = {Keys("type"), Keys("name"), Keys("description"), Keys("parameters"),
                                Keys("strict")};

// Reads a text, or a list of parts.
Fault read_text(OrderedJson& item, const char* key, const std::string& at) {
  OrderedJson* const text = member(item, key);
  const std::string where = at + "." + key;
  if (text != nullptr && text->is_array()) return read_parts(*text, where, kParts);
  return check_text(text, where, true);
}

// The texts of a list of parts, joined; "" if there is no list.
Fault read_joined(OrderedJson& item, const char* key, const std::string& at, std::string& text) {
  OrderedJson* const parts = member(item, key);
  if (parts == nullptr) return {};
  const std::string where = at + "." + key;
  if (!parts->is_array()) return refusal(where, "is " + shown(*parts) + "; expected a list");
  if (parts->empty()) return {};
  if (Fault f = read_parts(*parts, where, kReasoning); !f.ok()) return f;
  for (const OrderedJson& part : *parts) {
    text += (text.empty() ? "" : "\n") + part["text"].get_ref<const std::string&>();
  }
  return {};
}

class Reader {
 public:
  explicit Reader(OrderedJson& messages) : messages_(messages) {}

  Fault read(OrderedJson& item, const std::string& at) {
    if (!item.is_object()) return refusal(at, "is " + shown(item) + "; expected an object");
    const OrderedJson* const type = member(item, "type");
    if (type == nullptr || *type == "message") return read_message(item, at);
    if (*type == "function_call") return read_call(item, at);
    if (*type == "function_call_output") return read_output(item, at);
    if (*type == "reasoning") return read_reasoning(item, at);
    return refusal(at + ".type", "is " + shown(*type) +
                                     "; expected 'message', 'function_call', "
                                     "'function_call_output' or 'reasoning'");
  }

 private:
  // The assistant's message that an item belongs to: the last message if it is the assistant's and
  // has none of the `later` members, otherwise a new one. `later`: the member that the item sets,
  // and the members that come after it in a message.
  OrderedJson& answer(std::initializer_list<const char*> later) {
    const bool fits = !messages_.empty() && messages_.back()["role"] == "assistant" &&
                      std::ranges::none_of(later, [this](const char* key) {
                        return messages_.back().contains(key);
                      });
    if (!fits) messages_.push_back(OrderedJson::object({{"role", "assistant"}}));
    return messages_.back();
  }

  Fault read_message(OrderedJson& item, const std::string& at) {
    const OrderedJson* const role = member(item, "role");
    if (!is_one_of(role, kRoles)) {
      return refusal(at + ".role", (role == nullptr ? "is not set" : "is " + shown(*role)) +
                                       "; expected 'user', 'assistant', 'system' or 'developer'");
    }
    if (Fault f = check_members(item, at, kOfMessage); !f.ok()) return f;
    if (Fault f = read_text(item, "content", at); !f.ok()) return f;
    if (*role == "assistant") {
      answer({"content", "tool_calls"})["content"] = std::move(item["content"]);
    } else {
      messages_.push_back({{"role", *role}, {"content", std::move(item["content"])}});
    }
    return {};
  }

  Fault read_call(OrderedJson& item, const std::string& at) {
    if (Fault f = check_members(item, at, kOfCall); !f.ok()) return f;
    for (const char* const key : {"call_id", "name"}) {
      if (Fault f = check_text(member(item, key), at + "." + key, true); !f.ok()) return f;
    }
    if (Fault f = read_arguments(item, at + ".arguments"); !f.ok()) return f;
    OrderedJson function = {{"name", item["name"]}, {"arguments", std::move(item["arguments"])}};
    answer({})["tool_calls"].push_back(
        {{"id", item["call_id"]}, {"type", "function"}, {"function", std::move(function)}});
    return {};
  }

  Fault read_output(OrderedJson& item, const std::string& at) {
    if (Fault f = check_members(item, at, kOfOutput); !f.ok()) return f;
    if (Fault f = check_text(member(item, "call_id"), at + ".call_id", true); !f.ok()) return f;
    if (Fault f = read_text(item, "output", at); !f.ok()) return f;
    messages_.push_back({{"role", "tool"},
                         {"tool_call_id", item["call_id"]},
                         {"content", std::move(item["output"])}});
    return {};
  }

  Fault read_reasoning(OrderedJson& item, const std::string& at) {
    if (Fault f = check_members(item, at, kOfReasoning); !f.ok()) return f;
    std::string text, summary;
    if (Fault f = read_joined(item, "content", at, text); !f.ok()) return f;
    if (Fault f = read_joined(item, "summary", at, summary); !f.ok()) return f;
    if (text.empty()) text = std::move(summary);
    if (!text.empty()) {
      answer({"reasoning_content", "content", "tool_calls"})["reasoning_content"] = std::move(text);
    }
    return {};
  }

  OrderedJson& messages_;
};

}  // namespace

Fault read_input(OrderedJson input, OrderedJson& messages) {
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", std::move(input)}});
    return {};
  }
  if (!input.is_array()) {
    return refusal("input", "is " + shown(input) + "; expected a text or a list of items");
  }
  if (input.empty()) return refusal("input", "is empty; send at least one item");
  Reader reader(messages);
  for (size_t i = 0; i < input.size(); ++i) {
    if (Fault f = reader.read(input[i], "input[" + std::to_string(i) + "]"); !f.ok()) return f;
  }
  return {};
}

Fault read_response_tools(OrderedJson tools, OrderedJson& made) {
  if (Fault f = check_tool_list(tools); !f.ok()) return f;
  made = OrderedJson::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    OrderedJson& tool = tools[i];
    const std::string at = "tools[" + std::to_string(i) + "]";
    if (Fault f = check_tool_type(tool, at); !f.ok()) return f;
    if (Fault f = check_members(tool, at, kOfTool); !f.ok()) return f;
    if (Fault f = check_function(tool, at); !f.ok()) return f;
    OrderedJson function = OrderedJson::object();
    for (auto& [key, value] : tool.items()) {
      if (key != "type" && !value.is_null()) function[key] = std::move(value);
    }
    made.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return {};
}

}  // namespace runnel
