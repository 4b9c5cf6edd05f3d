// The commands about the program itself: help, completion and man.
#pragma once

#include <string>

#include "cli/flags.h"

namespace runnel {

// Adds these commands to the program. They describe all its commands, including those that are
// added later.
void add_help_commands(const Command& root, const std::string& version);

}  // namespace runnel
