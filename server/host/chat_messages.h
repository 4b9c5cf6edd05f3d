// The messages, tools and variables of a conversation, as clients send them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/host/fault.h"

namespace runnel {

inline constexpr int kSchemaDepth = 32;  // levels of nesting in a tool's schema or a call

// Checks messages, and converts them for ChatFormat: arguments of calls become objects, and members
// that templates do not know are removed. INVALID_ARGUMENT names the member.
Fault read_messages(OrderedJson& messages);

// Checks a list of tools. INVALID_ARGUMENT names the member.
Fault read_tools(const OrderedJson& tools);

// Checks variables for the template, an object at `at`. INVALID_ARGUMENT names the member.
Fault check_variables(const OrderedJson& variables, const std::string& at);

// Checks that an answer can continue the last message, which the client requests by the field `at`.
// The messages need not be valid.
Fault check_continues(const OrderedJson& messages, const std::string& at);

// --- The same for single parts, for endpoints whose requests have another form. ---
// `at` is the path of the value in the request.

// Checks the parts of a message, whose types must be among `types`, and converts them to plain
// parts of type text.
Fault read_parts(OrderedJson& content, const std::string& at,
                 std::span<const std::string_view> types);
// Converts the arguments of a call from JSON text to an object.
Fault read_arguments(OrderedJson& function, const std::string& at);
// These check the length of a list of tools, that a tool is a function, and the function's members.
Fault check_tool_list(const OrderedJson& tools);
Fault check_tool_type(OrderedJson& tool, const std::string& at);
Fault check_function(OrderedJson& function, const std::string& at);

}  // namespace runnel
