// What a server says of a request's fields, in the words of the flags that they come from.
#pragma once

#include <string>

namespace runnel {

// "INVALID_ARGUMENT: samples is 65; it must be ..." as "INVALID_ARGUMENT: --count is 65; it must be
// ...".
std::string in_flags(std::string message);

}  // namespace runnel
