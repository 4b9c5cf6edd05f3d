#include "server/openai/chat_fields.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

constexpr size_t kMaxVariables = 64;
constexpr size_t kMaxVariableName = 64;

// Names that a template has from elsewhere.
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

constexpr std::array<std::string_view, 6> kEfforts = {"none",   "minimal", "low",
                                                      "medium", "high",    "xhigh"};

bool names_variable(const std::string& name) {
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kMaxVariableName && (name[0] < '0' || name[0] > '9') &&
         std::ranges::all_of(name, is_part) && !name.ends_with("_token") &&
         std::ranges::count(kReserved, name) == 0;
}

}  // namespace

OrderedJson taken(OrderedJson& body, const char* key) {
  const auto found = body.find(key);
  return found == body.end() ? OrderedJson() : std::exchange(*found, nullptr);
}

void refuse(RequestFields& fields, const Fault& fault) {
  if (fault.ok()) return;
  fields.refuse(fault.param, fault.status.message().substr(fault.param.size() + 1));
}

void refuse_all(RequestFields& fields, std::span<const RefusedField> refused) {
  for (const RefusedField& field : refused) {
    if (fields.find(field.key) != nullptr) fields.refuse(field.key, field.what);
  }
}

void read_only(RequestFields& fields, const char* key, const Json& value, const char* shown) {
  const Json* const found = fields.find(key);
  if (found == nullptr || *found == value) return;
  fields.refuse(key, std::string("is not supported here; leave it out, or send ") + shown);
}

bool read_tool_choice(RequestFields& fields, ChatRequest& request) {
  request.one_call = !fields.boolean("parallel_tool_calls", true);
  const Json* const choice = fields.find("tool_choice");
  if (choice != nullptr && *choice != "none" && *choice != "auto") {
    fields.refuse("tool_choice",
                  "is " + describe(*choice) + "; only 'auto' and 'none' are supported here");
  }
  return choice == nullptr || *choice != "none";
}

void read_effort(RequestFields& fields, const char* key, ChatRequest& request) {
  const auto effort = fields.text(key);
  if (!effort) return;
  if (std::ranges::count(kEfforts, *effort) == 0) {
    return fields.refuse(key,
                         "is " + quote(*effort, 40) +
                             "; expected 'none', 'minimal', 'low', 'medium', 'high' or 'xhigh'");
  }
  request.variables["reasoning_effort"] = *effort;
  if (*effort == "none") request.variables["enable_thinking"] = false;
}

void read_variables(RequestFields& fields, const OrderedJson& given, ChatRequest& request) {
  static_cast<void>(fields.find("chat_template_kwargs"));
  if (given.is_null()) return;
  const std::string at = "chat_template_kwargs";
  if (!given.is_object()) return fields.refuse(at, "must be an object");
  if (given.size() > kMaxVariables) {
    return fields.refuse(at, "has " + std::to_string(given.size()) + " members; at most " +
                                 std::to_string(kMaxVariables) + " are allowed");
  }
  for (const auto& [name, value] : given.items()) {
    const std::string member = at + "." + (name.empty() ? "''" : printable(name, kMaxVariableName));
    if (!names_variable(name)) {
      return fields.refuse(member, "is not a variable that a request may set; leave it out");
    }
    if (value.is_structured()) {
      return fields.refuse(member, "is " + describe(Json(value)) +
                                       "; expected a text, a number, true, false or null");
    }
    request.variables[name] = value;
  }
}

}  // namespace runnel
