// The commands about the program itself: help, completion and man.
#pragma once

#include <string>

#include "cli/flags.h"

namespace runnel {

// Adds them to the program, whose other commands they describe: also those that are added later.
void add_help_commands(const Command& root, const std::string& version);

}  // namespace runnel
