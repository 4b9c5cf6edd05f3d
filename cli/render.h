// The command `render`: renders a chat request with a template, without a server.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/flags.h"

namespace runnel {

struct RenderOptions {
  std::optional<std::string> bundle;         // the directory of a bundle with a template
  std::optional<std::string> template_file;  // a file with a template, in place of `bundle`
  std::optional<std::string> tokens_file;    // with template_file: the tokens that it names
  std::string request;
  bool json = false;
};

// Prints the rendered text of the request. kExitFailed with the message if the template fails.
// kExitUsage if a file cannot be used.
int run_render(const RenderOptions& options, Console& console);

void add_render(const Command& root);

}  // namespace runnel
