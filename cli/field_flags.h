// Translates the names of request fields in a server's error messages into the flags that set them.
#pragma once

#include <string>

namespace runnel {

// Turns "INVALID_ARGUMENT: samples is 65; it must be ..." into "INVALID_ARGUMENT: --count is 65; it
// must be ...".
std::string in_flags(std::string message);

}  // namespace runnel
