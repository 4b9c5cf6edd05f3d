// Completion for shells, from the same list of commands and flags that --help shows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace runnel {

// A script for bash: commands and flags are completed, anything else as a file's name.
std::string bash_completion(const CLI::App& app);

// The same for zsh, with what each command and flag does: a file "_runnel" on its fpath.
std::string zsh_completion(const CLI::App& app);

}  // namespace runnel
