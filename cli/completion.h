// Completion scripts for shells, from the same list of commands and flags that --help shows.
#pragma once

#include <string>

#include "cli/flags.h"

namespace runnel {

// A script for bash. It completes commands, flags and the values of a setting, and everything else
// as a file name.
std::string bash_completion(const CommandShape& program);

// A script for zsh, with the description of each command and flag: a file "_runnel" on its fpath.
std::string zsh_completion(const CommandShape& program);

}  // namespace runnel
