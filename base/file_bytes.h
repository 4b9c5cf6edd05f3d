// Whole files in and out, with bounds and errors that name the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace runnel {

// The file's bytes. NOT_FOUND when it is not there, INVALID_ARGUMENT when it cannot be read or has
// more than `at_most` bytes.
Result<std::vector<uint8_t>> read_file(const std::string& path, int64_t at_most);

// The first bytes of a file, `count` of them or all that there are; errors as read_file().
Result<std::vector<uint8_t>> read_head(const std::string& path, int64_t count);

// OK when write_file() can be expected to succeed; found out before minutes of work, not after.
Status check_writable(const std::string& path);

// Replaces the file as a whole: readers see the old bytes or the new ones, never a part.
Status write_file(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace runnel
