// The manual page, from the same list of commands and flags that --help shows.
#pragma once

#include <string>

#include "cli/flags.h"

namespace runnel {

// The page runnel(1), written in the macros of man(7).
std::string man_page(const CommandShape& program, const std::string& version);

}  // namespace runnel
