// Finds and reads the calls of tools that models write.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace runnel {

// How models write calls.
enum class ToolCallForm {
  kTagged,     // <tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call>
  kXml,        // <tool_call><function=f><parameter=a>b</parameter></function></tool_call>
  kPython,     // <|tool_call_start|>[f(a='b')]<|tool_call_end|>
  kUpperList,  // <TOOLCALL>[{"name": "f", "arguments": {"a": "b"}}]</TOOLCALL>
  kLowerList,  // <tool_calls>[{"name": "f", "arguments": {"a": "b"}}]</tool_calls>
  kFenced,     // ```json, {"name": "f", "arguments": {"a": "b"}} and ```, each on its own lines
};

// The form of a call that a template has written. None: the form is unknown.
std::optional<ToolCallForm> form_of(std::string_view rendered);

// A text with more bytes than this is no call.
inline constexpr int64_t kMaxCallBytes = 64 << 10;

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object, as text

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// The pairs of tags around calls; a form may have several.
struct CallTags {
  std::string_view open, close;
};
std::span<const CallTags> tags_of(ToolCallForm form);

// Looks for the end of a call: a closing tag that is not in a quoted string of JSON or Python.
class CallEnd {
 public:
  CallEnd(ToolCallForm form, std::string_view close);

  // The offset of `close` in `text`, or npos if it is not there yet. `text` begins after the
  // opening tag, and grows from one call of find() to the next.
  size_t find(std::string_view text);

 private:
  const std::string_view close_;
  const bool python_, quotes_;
  size_t at_ = 0;   // how many bytes have been searched
  char quote_ = 0;  // the quote of the string that `at_` is in; 0: not in a string
};

// The calls in `body`, the text between the tags of `form`. None if it is not well formed. `tools`
// is the list of tools of the request, or null. XML parameters get their types from it, and a call
// in fenced JSON must name one of these tools.
std::optional<std::vector<ToolCall>> read_calls(std::string_view body, ToolCallForm form,
                                                const OrderedJson& tools);

}  // namespace runnel
