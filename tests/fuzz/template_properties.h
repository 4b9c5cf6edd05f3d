// What must hold for every chat template, as properties.h has it for files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Parses a template and renders a small conversation with it, for a tenth of a second at most.
// Refused: INVALID_ARGUMENT or RESOURCE_EXHAUSTED with a message. Rendered: the text is UTF-8, and
// its runs cover it. True when it was parsed.
bool check_template(std::string_view source);

// Small well-formed inputs to start from, and words that are worth inserting.
std::vector<std::string> template_seeds();
std::span<const std::string_view> template_words();

}  // namespace runnel
