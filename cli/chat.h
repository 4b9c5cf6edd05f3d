// The command `chat`: a conversation with a model, which the server keeps as a session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/common_flags.h"
#include "cli/console.h"
#include "cli/sampling_flags.h"

namespace runnel {

struct ChatOptions {
  Target server;
  std::string model, system;
  std::string session;  // empty: a new session, which is deleted at the end
  SamplingFlags sampling;
  std::optional<int64_t> max_values;  // of an answer
  double timeout = 3600;              // seconds, of an answer
  int input = 0;                      // the file descriptor from which messages are read
  bool interactive = false;           // shows prompts, and takes commands
};

// Answers messages until there are no more, and returns the exit code (console.h). The first
// failure ends a conversation that is not interactive.
int run_chat(const ChatOptions& options, Console& console);

void add_chat(const Command& root);

}  // namespace runnel
