#include "server/openai/tool_calls.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/ordered_json.h"
#include "server/openai/python_calls.h"

namespace runnel {
namespace {

using Calls = std::optional<std::vector<ToolCall>>;

constexpr int kDepth = 32;  // nesting of the arguments
constexpr std::array kForms = {ToolCallForm::kTagged,    ToolCallForm::kXml,
                               ToolCallForm::kPython,    ToolCallForm::kUpperList,
                               ToolCallForm::kLowerList, ToolCallForm::kFenced};
constexpr std::string_view kSpaces = " \t\r\n";

constexpr std::array kTagged = {CallTags{"<tool_call>", "</tool_call>"}};
// Some models omit the outer tags.
constexpr std::array kXml = {CallTags{"<tool_call>", "</tool_call>"},
                             CallTags{"<function=", "</function>"}};
constexpr std::array kPython = {CallTags{"<|tool_call_start|>", "<|tool_call_end|>"}};
constexpr std::array kUpperList = {CallTags{"<TOOLCALL>", "</TOOLCALL>"}};
constexpr std::array kLowerList = {CallTags{"<tool_calls>", "</tool_calls>"}};
constexpr std::array kFenced = {CallTags{"```json", "```"}};

std::string_view stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

Result<OrderedJson> parse(std::string_view text) {
  return parse_ordered_json(text, "a call", {kMaxCallBytes, kMaxCallBytes, kDepth});
}

// The schema of a tool; null if the request has no tool of that name.
const OrderedJson* function_of(const std::string& name, const OrderedJson& tools) {
  for (const OrderedJson& tool : tools) {
    const OrderedJson& function = tool.at("function");
    if (function.at("name") == name) return &function;
  }
  return nullptr;
}

// {"name": ..., "arguments": ...}. Llama's models say `parameters`; some write the arguments as
// text, as OpenAI's API has them.
std::optional<ToolCall> call_of(const OrderedJson& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return {};
  ToolCall call{json["name"].get<std::string>(), "{}"};
  if (call.name.empty()) return {};
  auto arguments = json.find("arguments");
  if (arguments == json.end()) arguments = json.find("parameters");
  if (arguments == json.end() || arguments->is_null()) return call;
  OrderedJson object = *arguments;
  if (object.is_string()) {
    Result<OrderedJson> inner = parse(object.get_ref<const std::string&>());
    if (!inner.ok()) return {};
    object = std::move(*inner);
  }
  if (!object.is_object()) return {};
  call.arguments = json_text(object);
  return call;
}

// A call, or a list of calls.
Calls read_json(std::string_view body) {
  Result<OrderedJson> json = parse(stripped(body));
  if (!json.ok()) return {};
  std::vector<ToolCall> calls;
  const OrderedJson list = json->is_array() ? std::move(*json) : OrderedJson::array({*json});
  for (const OrderedJson& entry : list) {
    auto call = call_of(entry);
    if (!call) return {};
    calls.push_back(std::move(*call));
  }
  return calls.empty() ? Calls() : calls;
}

// Null if `object` is null, is not an object, or lacks the member.
const OrderedJson* member_of(const OrderedJson* object, const std::string& key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

// A value of an XML parameter is text if the schema says so or says nothing. Otherwise it is JSON.
OrderedJson value_of(std::string_view text, const std::string& key, const OrderedJson* function) {
  const OrderedJson* const properties = member_of(member_of(function, "parameters"), "properties");
  const OrderedJson* const type = member_of(member_of(properties, key), "type");
  const bool is_text = type == nullptr || *type == "string" ||
                       (type->is_array() && std::ranges::count(*type, "string") > 0);
  if (is_text) return text;
  Result<OrderedJson> json = parse(stripped(text));
  return json.ok() ? std::move(*json) : OrderedJson(text);
}

// Removes everything up to and including `end` from `text`, and returns the part before `end`. If
// there is no `end`, returns none, and `text` does not change.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  if (at == std::string_view::npos) return {};
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return before;
}

// Removes the line breaks that follow an opening tag and precede a closing one.
std::string_view without_breaks(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// Reads "f>" and parameters. `text` begins after "<function=".
std::optional<ToolCall> xml_call(std::string_view text, const OrderedJson& tools) {
  const auto name = take_until(text, ">");
  if (!name || stripped(*name).empty()) return {};
  ToolCall call{std::string(stripped(*name)), ""};
  const OrderedJson* const function = function_of(call.name, tools);
  OrderedJson arguments = OrderedJson::object();
  while (!stripped(text).empty()) {
    const auto before = take_until(text, "<parameter=");
    if (!before || !stripped(*before).empty()) return {};
    const auto key = take_until(text, ">");
    const auto value = take_until(text, "</parameter>");
    if (!key || !value || arguments.contains(std::string(*key))) return {};
    const std::string name_of_key(*key);
    arguments[name_of_key] = value_of(without_breaks(*value), name_of_key, function);
  }
  call.arguments = json_text(arguments);
  return call;
}

Calls read_xml(std::string_view body, const OrderedJson& tools) {
  // If the model omitted the outer tags, <function= and </function> were the tags of the call, and
  // `body` is the text between them.
  if (!stripped(body).starts_with("<function=")) {
    auto call = xml_call(body, tools);
    return call ? Calls({std::move(*call)}) : Calls();
  }
  std::vector<ToolCall> calls;
  while (!stripped(body).empty()) {
    const auto before = take_until(body, "<function=");
    const auto text = take_until(body, "</function>");
    if (!before || !stripped(*before).empty() || !text) return {};
    auto call = xml_call(*text, tools);
    if (!call) return {};
    calls.push_back(std::move(*call));
  }
  return calls;
}

}  // namespace

std::optional<ToolCallForm> form_of(std::string_view rendered) {
  for (const ToolCallForm form : kForms) {
    for (const CallTags& tags : tags_of(form)) {
      std::string_view body = rendered;
      if (!take_until(body, tags.open)) continue;
      const auto call = take_until(body, tags.close);
      if (call && read_calls(*call, form, OrderedJson())) return form;
    }
  }
  return {};
}

std::span<const CallTags> tags_of(ToolCallForm form) {
  switch (form) {
    case ToolCallForm::kTagged:
      return kTagged;
    case ToolCallForm::kXml:
      return kXml;
    case ToolCallForm::kPython:
      return kPython;
    case ToolCallForm::kUpperList:
      return kUpperList;
    case ToolCallForm::kLowerList:
      return kLowerList;
    case ToolCallForm::kFenced:
      return kFenced;
  }
  return {};
}

CallEnd::CallEnd(ToolCallForm form, std::string_view close)
    : close_(close), python_(form == ToolCallForm::kPython), quotes_(form != ToolCallForm::kXml) {}

size_t CallEnd::find(std::string_view text) {
  while (at_ < text.size()) {
    const char c = text[at_];
    if (quote_ != 0) {
      if (c == '\\' && at_ + 1 == text.size()) return std::string_view::npos;
      if (c == quote_) quote_ = 0;
      at_ += c == '\\' ? 2 : 1;
      continue;
    }
    const std::string_view rest = text.substr(at_);
    if (rest.starts_with(close_)) return at_;
    if (rest.size() < close_.size() && close_.starts_with(rest)) return std::string_view::npos;
    if (quotes_ && (c == '"' || (python_ && c == '\''))) quote_ = c;
    ++at_;
  }
  return std::string_view::npos;
}

Calls read_calls(std::string_view body, ToolCallForm form, const OrderedJson& tools) {
  if (std::ssize(body) > kMaxCallBytes) return {};
  if (form == ToolCallForm::kXml) return read_xml(body, tools);
  if (form == ToolCallForm::kPython) return read_python_calls(stripped(body));
  Calls calls = read_json(body);
  if (!calls || form != ToolCallForm::kFenced || tools.is_null()) return calls;
  const bool known = std::ranges::all_of(
      *calls, [&](const ToolCall& call) { return function_of(call.name, tools) != nullptr; });
  return known ? calls : Calls();
}

}  // namespace runnel
