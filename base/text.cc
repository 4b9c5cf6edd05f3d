#include "base/text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/hex.h"

namespace runnel {
namespace {

// \xNN.
std::string escaped(char c) { return "\\x" + hex(std::string_view(&c, 1)); }

}  // namespace

std::string printable(std::string_view text, size_t most) {
  std::string out;
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += escaped(c);
    }
  }
  if (text.size() > most) out += "...";
  return out;
}

std::string quote(std::string_view text, size_t most) {
  std::string out = "'";
  out += printable(text, most);
  out += '\'';
  return out;
}

std::string quoted_choices(std::span<const std::string_view> words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += quote(words[i]);
  }
  return out;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (const int64_t size : shape) {
    if (out.size() > 1) out += ", ";
    out += std::to_string(size);
  }
  out += ']';
  return out;
}

std::string tame(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    // U+0080 to U+009F, which some terminals interpret as well.
    const bool second =
        byte >= 0x80 && byte < 0xA0 && i > 0 && static_cast<unsigned char>(text[i - 1]) == 0xC2;
    if (second) out.pop_back();
    if (second) out += escaped(text[i - 1]);
    if (control || second) {
      out += escaped(text[i]);
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string byte_count(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double amount = static_cast<double>(bytes);
  size_t unit = 0;
  while (amount >= 1024 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  const bool whole = amount == std::floor(amount);
  return fixed(amount, whole || amount >= 100 ? 0 : 1) + " " + kUnits[unit];
}

std::string fixed(double number, int digits) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, number);
  return text.data();
}

std::string number_text(float number) {
  const float size = std::abs(number);
  const bool is_plain = size == 0 || (size >= 1e-4F && size < 1e9F);
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number,
                    is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  return {text.data(), end.ptr};
}

}  // namespace runnel
