#include "server/openai/chat_fields.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "server/host/chat_messages.h"

namespace runnel {
namespace {

constexpr std::array<std::string_view, 6> kEfforts = {"none",   "minimal", "low",
                                                      "medium", "high",    "xhigh"};

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
  const Fault fault = check_variables(given, "chat_template_kwargs");
  if (!fault.ok()) return refuse(fields, fault);
  for (const auto& [name, value] : given.items()) request.variables[name] = value;
}

}  // namespace runnel
