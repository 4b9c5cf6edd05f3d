// The command line of `runnel serve`. The list of settings (config/field.h) gives a flag for every
// setting of the config file.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"
#include "config/field.h"
#include "config/server_config.h"
#include "server/process/serve.h"

namespace runnel {

// The contents of the command line.
struct ServeFlags {
  std::string config_file;                       // empty: none
  std::vector<std::string> models;               // DIRECTORY or NAME=DIRECTORY
  std::vector<std::string> chat_templates = {};  // NAME=FILE
  std::map<std::string, std::string> words;      // by flag
};

// The settings: defaults, then the file, then the flags. INVALID_ARGUMENT or NOT_FOUND says which
// key or flag is wrong.
Result<ServerConfig> config_of(const ServeFlags& flags);

// Adds one setting as a flag. Its value is stored in `words`. Both must outlive the command.
void add_setting(const Command& command, const Field& field,
                 std::map<std::string, std::string>& words);

// Serves with settings, which can be read again. Returns the exit code.
using RunServe = std::function<int(const ServerConfig& config, const Rereading& rereading)>;

// Adds the command, which calls `run` with the settings. If the settings are wrong, it writes a
// line to err and exits with code 2. If there is a file, SIGHUP makes the server read the settings
// again, from the same file and with the same flags.
void add_serve_command(const Command& root, RunServe run);

}  // namespace runnel
