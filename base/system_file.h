// Reads numbers from files of /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace runnel {

// The number at the beginning of a file. None if the file has "max" instead, or does not exist.
std::optional<int64_t> number_in(const std::string& path);

// The number after a word in a file of lines such as "MemAvailable: 1234 kB". None if the word is
// not in the file.
std::optional<int64_t> number_after(const std::string& path, const std::string& word);

}  // namespace runnel
