// The commands about the program itself: help, completion and man.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace runnel {

// Adds them to the program, whose other commands they describe: also those that are added later.
// See add_client_commands().
void add_help_commands(CLI::App& app, int& exit_code, const std::string& version);

}  // namespace runnel
