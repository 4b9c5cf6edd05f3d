// Converts a conversation to the values of a template's variables.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/template/chat_template.h"
#include "models/template/runtime.h"

namespace runnel {

// An estimate of a conversation's bytes: its text, and some bytes for each other value.
int64_t bytes_of(const Conversation& conversation);

// The variables of a rendering, by name. Strings count as written by the input or, in an
// assistant's message, by the assistant. The usual roles and the tokens count as written by the
// template, because templates make control tokens of them. Throws a Fault beyond the budget.
std::vector<std::pair<std::string, jinja::Value>> variables_of(jinja::Runtime& run,
                                                               const Conversation& conversation);

}  // namespace runnel
