// Converts bytes to and from base64 text (RFC 4648, section 4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace runnel {

// 4 characters for each 3 bytes, padded with "=".
constexpr int64_t base64_length(int64_t bytes) { return (bytes + 2) / 3 * 4; }

// `bytes` may be at most 1 GiB long.
std::string base64(std::span<const uint8_t> bytes);

// Decodes base64 text. None if the text is not valid; line ends and spaces are not allowed, either.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace runnel
