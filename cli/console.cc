#include "cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

// The variable's value; empty when it is not set.
std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != std::string_view::npos ||
           value.find("utf8") != std::string_view::npos;
  }
  return false;
}

TerminalSize size_of(int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

}  // namespace

Console standard_console() {
  const std::string_view terminal = environment("TERM");
  const bool capable = !terminal.empty() && terminal != "dumb";
  const bool err_terminal = isatty(STDERR_FILENO) == 1 && capable;
  const bool out_terminal = isatty(STDOUT_FILENO) == 1;
  const std::string_view colours = environment("COLORTERM");
  std::function<TerminalSize()> canvas;
  if (out_terminal && capable) canvas = [] { return size_of(STDOUT_FILENO); };
  return Console{.out = std::cout,
                 .err = std::cerr,
                 .out_terminal = out_terminal,
                 .err_terminal = err_terminal,
                 .colour = err_terminal && environment("NO_COLOR").empty(),
                 .utf8 = locale_is_utf8(),
                 .true_colour = colours == "truecolor" || colours == "24bit",
                 .columns = [] { return size_of(STDERR_FILENO).columns; },
                 .canvas = std::move(canvas)};
}

int fail(Console& console, int code, const std::string& message) {
  std::string line = tame(message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  console.err << "runnel: " << line << std::endl;
  return code;
}

int delivered(Console& console, int code) {
  console.out.flush();
  if (console.out || code != kExitOk) return code;
  return fail(console, kExitFailed,
              "standard output could not be written: is its disk full, or its reader gone?");
}

ProgressLine progress_line(Console& console, const std::string& unit) {
  return {console.err, console.clock, unit,
          ProgressLine::Options{.terminal = console.err_terminal,
                                .colour = console.colour,
                                .utf8 = console.utf8,
                                .columns = console.columns}};
}

}  // namespace runnel
