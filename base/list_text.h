// Parses lists in the form of the command line: parts separated by commas.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// The parts of a list, without the spaces around them; empty ones are left out.
std::vector<std::string> split_list(std::string_view text);

}  // namespace runnel
