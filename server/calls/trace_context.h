// Reads the trace of a call from the header "traceparent" of W3C Trace Context.
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// The trace id: 32 lowercase hexadecimal digits. Empty if `traceparent` is not valid.
std::string trace_id_of(std::string_view traceparent);

}  // namespace runnel
