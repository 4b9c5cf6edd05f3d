// Operations on text with Python's rules: lengths count code points, and white space and numbers
// are Python's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/text/marked_text.h"

namespace runnel::jinja {

// The code point at `offset` of valid UTF-8, and its length in bytes.
struct CodePoint {
  int32_t value;
  size_t bytes;
};
CodePoint code_point_at(std::string_view text, size_t offset);
// Appends a code point as UTF-8.
void append_code_point(std::string& text, int32_t value);

// The number of code points in `text`.
int64_t length(std::string_view text);
// The byte at which code point `index` begins. The end of the text if it has fewer.
size_t byte_offset(std::string_view text, int64_t index);

// Whether str.isspace() is true of the code point. It is also true of U+001C to U+001F and U+0085,
// but not of U+200B.
bool is_space(int32_t code_point);
// Where `text` begins and ends after str.strip() has removed white space, or the code points of
// `chars`.
size_t stripped_begin(std::string_view text);
size_t stripped_end(std::string_view text, size_t begin);
size_t stripped_begin(std::string_view text, std::string_view chars);
size_t stripped_end(std::string_view text, size_t begin, std::string_view chars);

// repr() of a float: "1000.0", "1e-07", "1e+22", "nan".
std::string float_text(double number);

enum class Case { kLower, kUpper, kTitle, kCapital, kWords };
// `text` with its letters changed as by str.lower(), .upper(), .title() and .capitalize(), and as
// by Jinja's filter "title", whose words begin only after white space, "-" and opening brackets.
// One letter becomes one letter, except U+00DF, which becomes SS.
MarkedText change_case(const MarkedText& text, Case to);

// Appends repr() of a string.
void append_repr(MarkedText& to, const MarkedText& text);
// Appends a string as json.dumps() writes it.
void append_json(MarkedText& to, const MarkedText& text, bool ascii);

}  // namespace runnel::jinja
