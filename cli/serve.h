// The command line of `runnel serve`: every setting of the config file as a flag, from one list.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/field.h"
#include "config/server_config.h"
#include "server/process/serve.h"

namespace runnel {

// What was said on the command line.
struct ServeFlags {
  std::string config_file;                   // empty: none
  std::vector<std::string> models;           // DIRECTORY or NAME=DIRECTORY
  std::map<std::string, std::string> words;  // by flag
};

// The settings: defaults, then the file, then the flags. INVALID_ARGUMENT or NOT_FOUND says which
// key or flag is wrong.
Result<ServerConfig> config_of(const ServeFlags& flags);

// Adds one setting as a flag, whose word goes to `words`; they outlive the command.
void add_setting(CLI::App& command, const Field& field, std::map<std::string, std::string>& words);

// Serves with settings, which can be read again. Gives the exit code.
using RunServe = std::function<int(const ServerConfig& config, const Rereading& rereading)>;

// Adds the command. Parsing it calls `run` with the settings and leaves what that gives in
// `exit_code`, which outlives the app; settings that are wrong are told on stderr, with exit
// code 2. They are read again from the same file, and with the same flags; SIGHUP asks for it where
// there is a file.
void add_serve_command(CLI::App& app, int& exit_code, RunServe run);

}  // namespace runnel
