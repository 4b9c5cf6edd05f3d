// The manual page, from the same list of commands and flags that --help shows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace runnel {

// The page "runnel(1)" in the macros of man(7).
std::string man_page(const CLI::App& app, const std::string& version);

}  // namespace runnel
