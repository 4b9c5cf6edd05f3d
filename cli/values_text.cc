#include "cli/values_text.h"

#include <charconv>

#include "base/text.h"

namespace runnel {
namespace {

constexpr std::string_view kSeparators = " \t\r\n\f\v,";

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

}  // namespace runnel
