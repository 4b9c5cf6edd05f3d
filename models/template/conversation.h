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

// The variables of a rendering, by name. Each string is marked with its Writer:
// - the template, for the tokens and the usual roles, because templates make control tokens of them
// - the assistant, for all other strings of an assistant's message
// - the input, for everything else
// Throws a Fault if the variables exceed the budget.
std::vector<std::pair<std::string, jinja::Value>> variables_of(jinja::Runtime& run,
                                                               const Conversation& conversation);

}  // namespace runnel
