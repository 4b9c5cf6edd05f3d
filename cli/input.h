// Reads the input of a command: a file, or standard input if its name is "-".
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace runnel {

inline constexpr const char* kStandardInput = "-";

// Reads all bytes of the file `name` or of standard input. Errors are those of read_file().
Result<std::string> read_input(const std::string& name, int64_t at_most);

// Reads text to send: as read_input(), but INVALID_ARGUMENT also if it is not UTF-8.
Result<std::string> read_text(const std::string& name, int64_t at_most);

// OK if `text` is UTF-8; otherwise INVALID_ARGUMENT, naming `what` and the first byte that is not.
Status check_utf8(const std::string& text, const std::string& what);

}  // namespace runnel
