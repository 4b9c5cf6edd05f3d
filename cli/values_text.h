// Converts values to and from text for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace runnel {

// Parses numbers that are separated by white space or commas, each from 0 to vocabulary - 1.
// INVALID_ARGUMENT names `where` ("--values", "book.txt, line 3"), the wrong word and what was
// expected.
Result<std::vector<int32_t>> parse_values(std::string_view text, int64_t vocabulary,
                                          const std::string& where);

// Parses one sequence per line, and at most `first` sequences. Lines without values are skipped.
Result<std::vector<std::vector<int32_t>>> parse_value_lines(std::string_view text,
                                                            int64_t vocabulary,
                                                            const std::string& file, int64_t first);

// Writes each value as its symbol. A value without a symbol is written as its number and a space.
// Control characters except newline and tab are escaped, because they could control a terminal.
std::string values_to_text(std::span<const int32_t> values, std::span<const std::string> symbols);

}  // namespace runnel
