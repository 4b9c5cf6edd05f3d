// The commands `runnel session fork|rewind|save|load|inspect`, which work on the states of sessions
// and on state files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common_flags.h"
#include "cli/console.h"

namespace runnel {

inline constexpr int64_t kMostStateFileBytes = int64_t{4} << 30;
inline constexpr int kStateFileMode = 0600;  // as private as the conversation

struct SessionStateOptions {
  Target server;
  std::string model;
  std::string id;  // fork: the parent; rewind; save; load: "" lets the server choose
  std::vector<std::string> children;  // fork: names of the new sessions
  std::optional<int> count;           // fork: the number of new sessions that the server names
  int64_t position = 0;               // rewind
  std::string file;
  bool allow_inexact = false;
  bool any_owner = false;          // save
  std::optional<int64_t> expires;  // save: the seconds until the file expires
  bool json = false;
  double timeout = 60;
};

// Each function runs one command and returns its exit code (console.h).
int run_session_fork(const SessionStateOptions& options, Console& console);
int run_session_rewind(const SessionStateOptions& options, Console& console);
int run_session_save(const SessionStateOptions& options, Console& console);
int run_session_load(const SessionStateOptions& options, Console& console);
// Reads only the file, and calls no server.
int run_session_inspect(const SessionStateOptions& options, Console& console);

// Adds the commands under `session`.
void add_session_state_commands(const Command& session);

}  // namespace runnel
