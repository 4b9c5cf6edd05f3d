// The streams that a command writes to, and the exit codes of commands.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "base/clock.h"
#include "cli/progress_bar.h"

namespace runnel {

// Exit codes of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // a call failed, or the server refused it
inline constexpr int kExitUsage = 2;   // a flag or a file cannot be used
inline constexpr int kExitInterrupted = 130;

struct TerminalSize {
  int columns = 80, rows = 24;
};

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool out_terminal = false, err_terminal = false;
  bool colour = false, utf8 = false;
  bool true_colour = false;  // `out` is a terminal with 24-bit colours
  // With the empty braces, a designated initializer may omit these two members.
  // NOLINTBEGIN(readability-redundant-member-init)
  std::function<int()> columns{};  // of the terminal that `err` writes to
  // Gives the size of the terminal that `out` writes to. Empty if `out` is not a terminal that
  // supports escape sequences.
  std::function<TerminalSize()> canvas{};
  Clock clock{};
  // NOLINTEND(readability-redundant-member-init)
};

// The streams of the process. Colours are used only on a terminal that has them, and never if
// NO_COLOR is set.
Console standard_console();

// Writes one line to err: "runnel: " and the message, with line ends and control characters
// escaped. Returns `code`.
int fail(Console& console, int code, const std::string& message);

// To be called at the end of a command. Returns its exit code. If not all of its output could be
// written to out, writes a line to err and returns kExitFailed.
int delivered(Console& console, int code);

// Shows the progress of a command on err.
ProgressLine progress_line(Console& console, const std::string& unit);

}  // namespace runnel
