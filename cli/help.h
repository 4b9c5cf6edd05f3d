// The commands that describe the program: `help`, `completion` and `man`.
#pragma once

#include <string>

#include "cli/flags.h"

namespace runnel {

// Adds the three commands to the program. They read the list of commands when they run, so they
// also describe commands that are added after this call.
void add_help_commands(const Command& root, const std::string& version);

}  // namespace runnel
