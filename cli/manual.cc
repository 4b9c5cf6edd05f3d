#include "cli/manual.h"

#include <sstream>
#include <string_view>
#include <vector>

#include "cli/flags.h"

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

// Text as troff takes it: nothing in it is a request or an escape.
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

// "TEXT" of CLI11's "TEXT:{bash,zsh}"; "" for a flag without a word.
std::string word_of(const CLI::Option& option) {
  if (option.get_type_size() == 0 || option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const std::string word = type.substr(0, type.find_first_of(": "));
  return word.empty() ? "TEXT" : word;
}

// "-n, --count".
std::string names_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string names;
  for (const std::string& name : option.get_snames()) names += ", -" + name;
  for (const std::string& name : option.get_lnames()) names += ", --" + name;
  return names.substr(2);
}

void add_option(const CLI::Option& option, std::ostream& out) {
  out << ".TP\n\\fB" << escaped(names_of(option)) << "\\fR";
  if (const std::string word = word_of(option); !word.empty() && !option.get_positional()) {
    out << " \\fI" << escaped(word) << "\\fR";
  }
  out << '\n' << escaped(option.get_description());
  const std::string standard = option.get_default_str();
  if (!standard.empty() && standard != "\"\"") out << " (default: " << escaped(standard) << ')';
  out << '\n';
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

void add_command(const CLI::App& command, std::ostream& out) {
  if (!commands_of(command).empty()) {
    for (const CLI::App* inner : commands_of(command)) add_command(*inner, out);
    return;
  }
  out << ".SS " << escaped(full_name(command));
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) out << ' ' << escaped(option->get_name(true));
  }
  out << '\n' << escaped(command.get_description()) << ".\n";
  for (const CLI::Option* option : command.get_options()) add_option(*option, out);
  if (!command.get_footer().empty()) {
    out << ".PP\n.nf\n" << escaped(command.get_footer()) << "\n.fi\n";
  }
}

}  // namespace

std::string man_page(const CLI::App& app, const std::string& version) {
  std::ostringstream out;
  out << ".TH RUNNEL 1 \"\" \"runnel " << escaped(version) << "\" \"User Commands\"\n"
      << ".SH NAME\nrunnel \\- " << escaped(app.get_description()) << '\n'
      << ".SH SYNOPSIS\n.B runnel\n.I COMMAND\n[\\fIOPTIONS\\fR]\n"
      << ".SH OPTIONS\n";
  for (const CLI::Option* option : app.get_options()) add_option(*option, out);
  out << ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) add_command(*command, out);
  out << kEnd;
  return out.str();
}

}  // namespace runnel
