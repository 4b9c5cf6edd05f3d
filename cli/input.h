// What a command reads: a file, or standard input where its name is "-".
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace runnel {

inline constexpr const char* kStandardInput = "-";

// All bytes of the file `name`, or of standard input. Errors as those of read_file().
Result<std::string> read_input(const std::string& name, int64_t at_most);

// The same as text that can be sent. INVALID_ARGUMENT also where it is not UTF-8.
Result<std::string> read_text(const std::string& name, int64_t at_most);

// OK for UTF-8; else INVALID_ARGUMENT names `what` and the first byte that is none.
Status check_utf8(const std::string& text, const std::string& what);

}  // namespace runnel
