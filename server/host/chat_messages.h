// The messages, tools and variables of a conversation, as clients send them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/host/fault.h"

namespace runnel {

inline constexpr int kSchemaDepth = 32;  // of objects and arrays in a tool's schema or a call

// Checks messages, and converts them for ChatFormat: arguments of calls become objects, and members
// that templates do not know are removed. INVALID_ARGUMENT names the member.
Fault read_messages(OrderedJson& messages);

// Checks a list of tools. INVALID_ARGUMENT names the member.
Fault read_tools(const OrderedJson& tools);

// Checks variables for the template, an object at `at`. INVALID_ARGUMENT names the member.
Fault check_variables(const OrderedJson& variables, const std::string& at);

// Checks that an answer can continue the last message, as the field `at` asks. The messages need
// not be valid.
Fault check_continues(const OrderedJson& messages, const std::string& at);

// --- Their parts, for endpoints that have them in another place. `at`: the path of the value. ---

// The parts of a message, each of one of `types`, become parts of type text and nothing else.
Fault read_parts(OrderedJson& content, const std::string& at,
                 std::span<const std::string_view> types);
// The arguments of a call, JSON as text, become the object.
Fault read_arguments(OrderedJson& function, const std::string& at);
// A list of tools that is not too long; one that is a function; the function.
Fault check_tool_list(const OrderedJson& tools);
Fault check_tool_type(OrderedJson& tool, const std::string& at);
Fault check_function(OrderedJson& function, const std::string& at);

}  // namespace runnel
