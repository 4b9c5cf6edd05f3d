#include "cli/completion.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "cli/flags.h"

namespace runnel {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> flags_of(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_lnames()) flags.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flags.push_back("-" + name);
  return flags;
}

bool takes_word(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// One line of bash's case: after these words, one of those may follow.
void add_bash_case(const CLI::App& app, std::ostream& out) {
  out << "    '" << full_name(app) << "') words='";
  for (const CLI::App* command : commands_of(app)) out << command->get_name() << ' ';
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& flag : flags_of(*option)) out << flag << ' ';
  }
  out << "' ;;\n";
  for (const CLI::App* command : commands_of(app)) add_bash_case(*command, out);
}

void add_bash_paths(const CLI::App& app, std::ostream& out) {
  for (const CLI::App* command : commands_of(app)) {
    out << "      '" << full_name(*command) << "') path=$next ;;\n";
    add_bash_paths(*command, out);
  }
}

// Text within '...' and, where `spec`, within a specification of _arguments or _describe.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == ':' || c == '[' || c == ']' || c == '\\') {
      out += std::string("\\") + c;
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

// "runnel session list" as "_runnel_session_list".
std::string zsh_function(const CLI::App& app) {
  std::string name = "_" + full_name(app);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

void add_zsh_choice(const CLI::App& app, std::ostream& out) {
  out << "  local -a commands=(\n";
  for (const CLI::App* command : commands_of(app)) {
    out << "    '" << command->get_name() << ':' << zsh_text(command->get_description()) << "'\n";
  }
  out << "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      << "  shift words; (( CURRENT-- ))\n  case $words[1] in\n";
  for (const CLI::App* command : commands_of(app)) {
    out << "    " << command->get_name() << ") " << zsh_function(*command) << " ;;\n";
  }
  out << "  esac\n";
}

void add_zsh_function(const CLI::App& app, std::ostream& out) {
  for (const CLI::App* command : commands_of(app)) add_zsh_function(*command, out);
  out << zsh_function(app) << "() {\n";
  if (!commands_of(app).empty()) {
    add_zsh_choice(app, out);
  } else {
    out << "  _arguments \\\n";
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& flag : flags_of(*option)) {
        out << "    '*" << flag << '[' << zsh_text(option->get_description()) << ']'
            << (takes_word(*option) ? ":value:_files" : "") << "' \\\n";
      }
    }
    out << "    '*:file:_files'\n";
  }
  out << "}\n";
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::ostringstream out;
  out << "# Completion of runnel for bash: made by 'runnel completion bash'.\n"
      << "_runnel() {\n"
      << "  local current=${COMP_WORDS[COMP_CWORD]} path=runnel next words i\n"
      << "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      << "    next=\"$path ${COMP_WORDS[i]}\"\n    case $next in\n";
  add_bash_paths(app, out);
  out << "    esac\n  done\n  case $path in\n";
  add_bash_case(app, out);
  out << "  esac\n"
      << "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      << "}\n"
      << "complete -o default -F _runnel runnel\n";
  return out.str();
}

std::string zsh_completion(const CLI::App& app) {
  std::ostringstream out;
  out << "#compdef runnel\n# Completion of runnel for zsh: made by 'runnel completion zsh'.\n";
  add_zsh_function(app, out);
  out << "_runnel \"$@\"\n";
  return out.str();
}

}  // namespace runnel
