// Refusals of HTTP requests, and their form in OpenAI's API.
#pragma once

#include <string>

#include "base/status.h"
#include "server/host/fault.h"
#include "server/http/http_server.h"

namespace runnel {

// The refusal of a status, in a door's words: "max_values is 0; ..." becomes "max_tokens is 0;
// ...".
Fault fault_of(const Status& status, const FieldWord& word_of);

// The HTTP status of a code: 400 for INVALID_ARGUMENT, and so on.
int http_status_of(Code code);
// The code of an HTTP status, for requests that are refused before they are read.
Code code_of_http(int status);

// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string error_json(const Fault& fault);

// Sends the fault with its HTTP status, and with Retry-After if a retry can help.
void send_fault(const Fault& fault, HttpReply& reply);

}  // namespace runnel
