// Parses comma-separated lists, which are the values of some settings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// The parts of a list, without the spaces around them; empty ones are left out.
std::vector<std::string> split_list(std::string_view text);

}  // namespace runnel
