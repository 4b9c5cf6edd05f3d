// Where a command writes, and how commands end.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "base/clock.h"
#include "cli/progress_bar.h"

namespace runnel {

// Exit codes of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // a call failed, or the server said no
inline constexpr int kExitUsage = 2;   // flags or files that cannot be used
inline constexpr int kExitInterrupted = 130;

struct TerminalSize {
  int columns = 80, rows = 24;
};

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool out_terminal = false, err_terminal = false;
  bool colour = false, utf8 = false;
  bool true_colour = false;  // 24 bits, behind out
  // The empty braces let a designated initializer leave the two out.
  // NOLINTBEGIN(readability-redundant-member-init)
  std::function<int()> columns{};  // of the terminal behind err
  // Gives the size of the terminal that `out` writes to. Empty if `out` is no terminal that takes
  // escape sequences.
  std::function<TerminalSize()> canvas{};
  Clock clock{};
  // NOLINTEND(readability-redundant-member-init)
};

// The process's own streams. Colour only on a terminal that has it, and never where NO_COLOR is
// set.
Console standard_console();

// One line on err, "runnel: " and the message with line ends and control characters made harmless.
// Gives `code` back.
int fail(Console& console, int code, const std::string& message);

// Call at the end of a command: its exit code, or kExitFailed with one line on err where not all
// that it printed on out could be written.
int delivered(Console& console, int code);

// Progress of a command on err.
ProgressLine progress_line(Console& console, const std::string& unit);

}  // namespace runnel
