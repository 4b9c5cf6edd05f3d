// The trace that a call belongs to, as W3C Trace Context hands it on in the header "traceparent".
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// The trace id, 32 lowercase hexadecimal digits; empty where `traceparent` is not valid.
std::string trace_id_of(std::string_view traceparent);

}  // namespace runnel
