// Checks properties that every body of an HTTP request must have, as properties.h does for files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/http/fault.h"

namespace runnel {

// Reads the body of POST /v1/completions. A refusal is as check_fault() requires. If the body is
// accepted, every member is within its limits, and the prompt has no more tokens or bytes than the
// body has bytes. True if it was accepted.
bool check_completion_request(std::string_view body);

// A refusal is INVALID_ARGUMENT: one short printable line that starts with the body or the field.
void check_fault(const Fault& fault);
// The fields that every endpoint reads are within their limits, for a body of this many bytes.
void check_call(const GenerateRequest& call, size_t body);

// Small well-formed inputs to start from, and words for the fuzzer to insert.
std::vector<std::string> completion_seeds();
std::span<const std::string_view> completion_words();

}  // namespace runnel
