// Converts bytes to and from text of 64 characters (RFC 4648, section 4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace runnel {

// 4 characters for each 3 bytes, padded with "=".
constexpr int64_t base64_length(int64_t bytes) { return (bytes + 2) / 3 * 4; }

// At most 1 GiB of bytes.
std::string base64(std::span<const uint8_t> bytes);

// The bytes of a text in this form. None if it has another form; line ends and spaces are not
// allowed, either.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace runnel
