// Completion for shells, from the same list of commands and flags that --help shows.
#pragma once

#include <string>

#include "cli/flags.h"

namespace runnel {

// A script for bash: commands, flags and the words that a setting may be; anything else
// as a file's name.
std::string bash_completion(const CommandShape& program);

// The same for zsh, with what each command and flag does: a file "_runnel" on its fpath.
std::string zsh_completion(const CommandShape& program);

}  // namespace runnel
