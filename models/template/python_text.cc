#include "models/template/python_text.h"

#include <utf8proc.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace runnel::jinja {
namespace {

constexpr int32_t kSharpS = 0xDF;

std::string escape(const char* format, int32_t value) {
  std::array<char, 16> buffer;
  std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(value));
  return buffer.data();
}

bool is_printable(int32_t code_point) {
  if (code_point == ' ') return true;
  const auto category = utf8proc_category(code_point);
  return category != UTF8PROC_CATEGORY_CN && category != UTF8PROC_CATEGORY_CC &&
         category != UTF8PROC_CATEGORY_CF && category != UTF8PROC_CATEGORY_CS &&
         category != UTF8PROC_CATEGORY_CO && category != UTF8PROC_CATEGORY_ZL &&
         category != UTF8PROC_CATEGORY_ZP && category != UTF8PROC_CATEGORY_ZS;
}

bool is_cased(int32_t code_point) {
  return utf8proc_tolower(code_point) != code_point || utf8proc_toupper(code_point) != code_point ||
         utf8proc_category(code_point) == UTF8PROC_CATEGORY_LL;
}

// Whether a word of Jinja's filter "title" begins after the code point.
bool precedes_word(int32_t c) {
  return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

bool contains(std::string_view chars, std::string_view character) {
  return chars.find(character) != std::string_view::npos;  // matches only whole characters of UTF-8
}

template <typename Strips>
size_t first_kept(std::string_view text, const Strips& strips) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint next = code_point_at(text, at);
    if (!strips(next.value, text.substr(at, next.bytes))) break;
    at += next.bytes;
  }
  return at;
}

template <typename Strips>
size_t last_kept(std::string_view text, size_t begin, const Strips& strips) {
  size_t end = text.size();
  while (end > begin) {
    size_t at = end - 1;
    while (at > begin && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!strips(code_point_at(text, at).value, text.substr(at, end - at))) break;
    end = at;
  }
  return end;
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) {
    return offset + i < text.size() ? static_cast<unsigned char>(text[offset + i]) : 0;
  };
  const int32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

void append_code_point(std::string& text, int32_t value) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto count = utf8proc_encode_char(value, bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
}

int64_t length(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

size_t byte_offset(std::string_view text, int64_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    at += code_point_at(text, at).bytes;
    --index;
  }
  return at;
}

bool is_space(int32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

size_t stripped_begin(std::string_view text) {
  return first_kept(text, [](int32_t c, std::string_view) { return is_space(c); });
}

size_t stripped_end(std::string_view text, size_t begin) {
  return last_kept(text, begin, [](int32_t c, std::string_view) { return is_space(c); });
}

size_t stripped_begin(std::string_view text, std::string_view chars) {
  return first_kept(text, [&](int32_t, std::string_view c) { return contains(chars, c); });
}

size_t stripped_end(std::string_view text, size_t begin, std::string_view chars) {
  return last_kept(text, begin, [&](int32_t, std::string_view c) { return contains(chars, c); });
}

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  // The shortest digits that read back as the same number. Python chooses between the two
  // notations.
  std::array<char, 400> buffer;
  char* const begin = buffer.data();
  char* const most = begin + buffer.size();
  std::string text(begin, std::to_chars(begin, most, number, std::chars_format::scientific).ptr);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return text;
  text.assign(begin, std::to_chars(begin, most, number, std::chars_format::fixed).ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

MarkedText change_case(const MarkedText& text, Case to) {
  MarkedText changed;
  bool in_word = false;
  std::string letter;
  for (size_t at = 0; at < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, at);
    const bool upper = to == Case::kUpper || (!in_word && to != Case::kLower);
    const bool first_of_title = upper && (to == Case::kTitle || to == Case::kCapital);
    letter.clear();
    if (upper && c.value == kSharpS) {
      letter = first_of_title ? "Ss" : "SS";
    } else {
      append_code_point(letter, first_of_title ? utf8proc_totitle(c.value)
                                : upper        ? utf8proc_toupper(c.value)
                                               : utf8proc_tolower(c.value));
    }
    changed.append(letter, text.writer_at(at));
    in_word =
        to == Case::kCapital || (to == Case::kWords ? !precedes_word(c.value) : is_cased(c.value));
    at += c.bytes;
  }
  return changed;
}

void append_repr(MarkedText& to, const MarkedText& text) {
  const std::string& bytes = text.bytes;
  const bool doubled =
      bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  to.append({&quote, 1}, Writer::kTemplate);
  size_t kept = 0;  // the text up to here is written
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    const int32_t v = c.value;
    if (v == quote || v == '\\' || !is_printable(v)) {
      to.append(text, kept, at);
      to.append(v == quote || v == '\\' ? std::string("\\") + static_cast<char>(v)
                : v == '\n'             ? "\\n"
                : v == '\r'             ? "\\r"
                : v == '\t'             ? "\\t"
                : v < 0x100             ? escape("\\x%02x", v)
                : v < 0x10000           ? escape("\\u%04x", v)
                                        : escape("\\U%08x", v),
                text.writer_at(at));
      kept = at + c.bytes;
    }
    at += c.bytes;
  }
  to.append(text, kept, bytes.size());
  to.append({&quote, 1}, Writer::kTemplate);
}

void append_json(MarkedText& to, const MarkedText& text, bool ascii) {
  const std::string& bytes = text.bytes;
  to.append("\"", Writer::kTemplate);
  size_t kept = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    const int32_t v = c.value;
    if (v == '"' || v == '\\' || v < 0x20 || (ascii && v > 0x7E)) {
      to.append(text, kept, at);
      to.append(v == '"' || v == '\\' ? std::string("\\") + static_cast<char>(v)
                : v == '\n'           ? "\\n"
                : v == '\r'           ? "\\r"
                : v == '\t'           ? "\\t"
                : v == '\b'           ? "\\b"
                : v == '\f'           ? "\\f"
                : v < 0x10000         ? escape("\\u%04x", v)
                                      : escape("\\u%04x", 0xD800 + ((v - 0x10000) >> 10)) +
                                    escape("\\u%04x", 0xDC00 + ((v - 0x10000) & 0x3FF)),
                text.writer_at(at));
      kept = at + c.bytes;
    }
    at += c.bytes;
  }
  to.append(text, kept, bytes.size());
  to.append("\"", Writer::kTemplate);
}

}  // namespace runnel::jinja
