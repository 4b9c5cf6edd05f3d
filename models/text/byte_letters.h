// The characters that stand for bytes in the tokens of a byte-level vocabulary: printable ones of
// Latin-1 for themselves, and for the other bytes, in order, those from U+0100 on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace runnel {

// The character of a byte, in UTF-8.
const std::string& letter_of(unsigned char byte);

// The bytes that `letters`, which is UTF-8, stands for; none where one of its characters stands for
// no byte.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace runnel
