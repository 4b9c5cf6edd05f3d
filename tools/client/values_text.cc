#include "tools/client/values_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "models/text.h"

namespace runnel {
namespace {

constexpr std::string_view kSeparators = " \t\r\n\f\v,";

void append_escaped(unsigned char byte, std::string& out) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]}) out += c;
}

}  // namespace

Result<std::vector<int32_t>> parse_values(std::string_view text, int64_t vocabulary,
                                          const std::string& where) {
  std::vector<int32_t> values;
  while (true) {
    const size_t begin = text.find_first_not_of(kSeparators);
    if (begin == std::string_view::npos) return values;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kSeparators));
    int64_t value = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < 0 ||
        value >= vocabulary) {
      return invalid_argument(where + ": value " + std::to_string(values.size()) + " is " +
                              quote(word, 40) + "; expected a whole number from 0 to " +
                              std::to_string(vocabulary - 1));
    }
    values.push_back(static_cast<int32_t>(value));
    text.remove_prefix(word.size());
  }
}

Result<std::vector<std::vector<int32_t>>> parse_value_lines(std::string_view text,
                                                            int64_t vocabulary,
                                                            const std::string& file,
                                                            int64_t first) {
  std::vector<std::vector<int32_t>> lines;
  int64_t number = 0;
  while (!text.empty() && static_cast<int64_t>(lines.size()) < first) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    Result<std::vector<int32_t>> values =
        parse_values(line, vocabulary, file + ", line " + std::to_string(++number));
    if (!values.ok()) return values.status();
    if (!values->empty()) lines.push_back(std::move(*values));
  }
  return lines;
}

std::string values_to_text(std::span<const int32_t> values, std::span<const std::string> symbols) {
  std::string out;
  for (const int32_t value : values) {
    if (value >= 0 && static_cast<size_t>(value) < symbols.size()) {
      out += tame(symbols[value]);
    } else {
      out += std::to_string(value);
      out += ' ';
    }
  }
  return out;
}

std::string tame(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    // U+0080 to U+009F, which some terminals obey as well.
    const bool second =
        byte >= 0x80 && byte < 0xA0 && i > 0 && static_cast<unsigned char>(text[i - 1]) == 0xC2;
    if (second) out.pop_back();
    if (second) append_escaped(0xC2, out);
    if (control || second) {
      append_escaped(byte, out);
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

}  // namespace runnel
