// What must hold for every body of a request over HTTP, as properties.h has it for files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/http/fault.h"

namespace runnel {

// Reads the body of POST /v1/completions. Refused: INVALID_ARGUMENT with one short printable line
// that starts with the body or the field at fault. Accepted: every member is within its limits, and
// what was read has no more tokens and bytes than the body. True when it was accepted.
bool check_completion_request(std::string_view body);

// A refusal, as above.
void check_fault(const Fault& fault);
// What every endpoint reads of a body with this number of bytes.
void check_call(const GenerateRequest& call, size_t body);

// Small well-formed inputs to start from, and words that are worth inserting.
std::vector<std::string> completion_seeds();
std::span<const std::string_view> completion_words();

}  // namespace runnel
