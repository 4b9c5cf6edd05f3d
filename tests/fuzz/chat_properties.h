// Checks properties that every body of a chat request must have. request_properties.h does the same
// for completions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Reads the body of POST /v1/chat/completions, or of POST /v1/responses. A refusal must be
// INVALID_ARGUMENT with one short printable line that starts with the body or the field at fault.
// Otherwise messages and tools must have the form for templates, and the result is true.
bool check_chat_request(std::string_view body);
bool check_response_request(std::string_view body);

// Small well-formed inputs to start from, and words for the fuzzer to insert.
std::vector<std::string> chat_seeds();
std::vector<std::string> response_seeds();
std::span<const std::string_view> chat_words();

}  // namespace runnel
