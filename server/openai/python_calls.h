// Parses calls of tools that are written in Python: [f(a='b', n=3), g()].
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "server/openai/tool_calls.h"

namespace runnel {

// The calls of a list. None if `text` is anything else. Arguments have names, and are literals:
// strings, numbers, True, False, None, lists and dicts.
std::optional<std::vector<ToolCall>> read_python_calls(std::string_view text);

}  // namespace runnel
