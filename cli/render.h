// The command `render`: a chat request through a template, without a server.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/flags.h"

namespace runnel {

struct RenderOptions {
  std::optional<std::string> bundle;         // the directory with the template,
  std::optional<std::string> template_file;  // or a file of one,
  std::optional<std::string> tokens_file;    // and the tokens that it names
  std::string request;
  bool json = false;
};

// Prints what the request renders to. kExitFailed where the template fails, with its message;
// kExitUsage where a file cannot be used.
int run_render(const RenderOptions& options, Console& console);

void add_render(const Command& root);

}  // namespace runnel
