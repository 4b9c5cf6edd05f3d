// Text for people: input from outside, escaped and cut short; numbers and sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace runnel {

// `text` as printable ASCII, other bytes as \xNN; at most `most` bytes of it, then "...".
std::string printable(std::string_view text, size_t most = 80);

// printable() between single quotes: a name in a message.
std::string quote(std::string_view text, size_t most = 80);

// "'a', 'b' or 'c'": the choices that a message lists.
std::string quoted_choices(std::span<const std::string_view> words);

// "[3, 4]".
std::string shape_text(std::span<const int64_t> shape);

// `text` with control characters except newline and tab escaped as \xNN, because they could control
// a terminal.
std::string tame(std::string_view text);

// 1234567 as "1,234,567".
std::string with_commas(int64_t number);

// A number of bytes for people: "264 KiB", "3.1 MiB".
std::string byte_count(int64_t bytes);

// A number with this many digits after the point.
std::string fixed(double number, int digits);

// A number for people, with the fewest digits from which it can be read back: "0.5", "16",
// "1e-08".
std::string number_text(float number);

}  // namespace runnel
