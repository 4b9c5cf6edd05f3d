// Values as people write and read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace runnel {

// Numbers separated by white space or commas, each from 0 to vocabulary - 1. INVALID_ARGUMENT names
// `where` ("--values", "book.txt, line 3"), the word that is wrong and what was expected.
Result<std::vector<int32_t>> parse_values(std::string_view text, int64_t vocabulary,
                                          const std::string& where);

// One sequence per line, lines without a value left out, at most `first` sequences.
Result<std::vector<std::vector<int32_t>>> parse_value_lines(std::string_view text,
                                                            int64_t vocabulary,
                                                            const std::string& file, int64_t first);

// `values` by the list of symbols, or as numbers, each followed by a space, without one. What could
// steer a terminal (control characters but newline and tab) is escaped.
std::string values_to_text(std::span<const int32_t> values, std::span<const std::string> symbols);

}  // namespace runnel
