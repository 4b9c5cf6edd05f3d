// Numbers in files of /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace runnel {

// The number at the beginning of a file; none where it says "max", or is not there.
std::optional<int64_t> number_in(const std::string& path);

// The number after a word in a file of lines such as "MemAvailable: 1234 kB"; none where the word
// is not there.
std::optional<int64_t> number_after(const std::string& path, const std::string& word);

}  // namespace runnel
