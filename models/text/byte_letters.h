// The characters that represent bytes in the tokens of a byte-level vocabulary. Printable
// characters of Latin-1 represent themselves. The other bytes, in order, are represented by the
// characters from U+0100 on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace runnel {

// The character of a byte, in UTF-8.
const std::string& letter_of(unsigned char byte);

// The bytes that `letters`, in UTF-8, represents. None if one of its characters represents no byte.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace runnel
