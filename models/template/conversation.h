// A conversation as the values that a template sees.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/template/chat_template.h"
#include "models/template/runtime.h"

namespace runnel {

// The bytes of text in a conversation, and some for each of its other values.
int64_t bytes_of(const Conversation& conversation);

// The variables of a rendering, by name. Strings are the input's, or the assistant's in a message
// of it. A role that is one of the usual ones, and the tokens, are the template's: templates make
// control tokens of them. Throws a Fault beyond the budget.
std::vector<std::pair<std::string, jinja::Value>> variables_of(jinja::Runtime& run,
                                                               const Conversation& conversation);

}  // namespace runnel
