// What must hold for every body of a request for chat, as request_properties.h has it for
// completions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Reads the body of POST /v1/chat/completions, and of POST /v1/responses. Refused: INVALID_ARGUMENT
// with one short printable line that starts with the body or the field at fault. Accepted: messages
// and tools have the form that templates are given. True when it was accepted.
bool check_chat_request(std::string_view body);
bool check_response_request(std::string_view body);

// Small well-formed inputs to start from, and words that are worth inserting.
std::vector<std::string> chat_seeds();
std::vector<std::string> response_seeds();
std::span<const std::string_view> chat_words();

}  // namespace runnel
