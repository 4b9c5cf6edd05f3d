// Checks properties that every chat template must have, as properties.h does for files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Parses a template and renders a small conversation within a tenth of a second. If it is refused,
// the status is INVALID_ARGUMENT or RESOURCE_EXHAUSTED with a message. If it is rendered, the text
// is UTF-8, and its runs cover all of it. True if it was parsed.
bool check_template(std::string_view source);

// Small well-formed inputs to start from, and words for the fuzzer to insert.
std::vector<std::string> template_seeds();
std::span<const std::string_view> template_words();

}  // namespace runnel
