// Converts to and from hexadecimal digits, in lower case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace runnel {

// 16 digits, the most significant first.
std::string hex(uint64_t number);

// Two digits for each byte, in the order of the bytes.
std::string hex(std::string_view bytes);

// The bytes from which hex(bytes) made `digits`. None if `digits` are not pairs of 0-9 and a-f.
std::optional<std::string> bytes_of_hex(std::string_view digits);

}  // namespace runnel
