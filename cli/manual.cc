#include "cli/manual.h"

#include <sstream>
#include <string_view>

namespace runnel {
namespace {

constexpr const char* kEnd = R"(.SH EXIT STATUS
.TP
0
The command did what it was asked.
.TP
1
A call failed, or the server refused it.
.TP
2
Flags, files or settings cannot be used.
.TP
130
The command was interrupted.
.SH FILES
Bundles are directories; docs/bundle.md describes them, docs/configuration.md the file of
.BR "runnel serve \-\-config" .
)";

// Escapes text for troff, so that none of it is read as a request or an escape.
std::string escaped(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

void add_flag(const FlagShape& flag, std::ostream& out) {
  std::string names;
  for (const std::string& name : flag.names) names += (names.empty() ? "" : ", ") + name;
  out << ".TP\n\\fB" << escaped(names) << "\\fR";
  if (!flag.type.empty() && !flag.by_place) out << " \\fI" << escaped(flag.type) << "\\fR";
  out << '\n' << escaped(flag.what);
  if (!flag.default_text.empty() && flag.default_text != "\"\"") {
    out << " (default: " << escaped(flag.default_text) << ')';
  }
  out << '\n';
}

void add_command(const CommandShape& command, std::ostream& out) {
  if (!command.commands.empty()) {
    for (const CommandShape& inner : command.commands) add_command(inner, out);
    return;
  }
  out << ".SS " << escaped(command.full_name);
  for (const FlagShape& flag : command.flags) {
    if (flag.by_place) out << ' ' << escaped(flag.names.front());
  }
  out << '\n' << escaped(command.what) << ".\n";
  for (const FlagShape& flag : command.flags) add_flag(flag, out);
  if (!command.footer.empty()) out << ".PP\n.nf\n" << escaped(command.footer) << "\n.fi\n";
}

}  // namespace

std::string man_page(const CommandShape& program, const std::string& version) {
  std::ostringstream out;
  out << ".TH RUNNEL 1 \"\" \"runnel " << escaped(version) << "\" \"User Commands\"\n"
      << ".SH NAME\nrunnel \\- " << escaped(program.what) << '\n'
      << ".SH SYNOPSIS\n.B runnel\n.I COMMAND\n[\\fIOPTIONS\\fR]\n"
      << ".SH OPTIONS\n";
  for (const FlagShape& flag : program.flags) add_flag(flag, out);
  out << ".SH COMMANDS\n";
  for (const CommandShape& command : program.commands) add_command(command, out);
  out << kEnd;
  return out.str();
}

}  // namespace runnel
