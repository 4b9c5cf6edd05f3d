#include "cli/completion.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

namespace runnel {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Cases of the bash function: for each flag of this command that takes a value, the possible
// values. An empty list lets bash offer files.
void add_bash_flags(const CommandShape& command, std::ostream& out) {
  for (const FlagShape& flag : command.flags) {
    if (flag.by_place || flag.type.empty()) continue;
    out << "    ";
    for (const std::string& name : flag.names) {
      out << (name == flag.names.front() ? "" : "|") << "'" << command.full_name << ' ' << name
          << "'";
    }
    out << ") words='" << joined(flag.words) << "' ;;\n";
  }
  for (const CommandShape& inner : command.commands) add_bash_flags(inner, out);
}

// A case of the bash function: the commands under this one and its flags. In the place of an
// argument without a flag, bash offers the possible values of that argument instead.
void add_bash_case(const CommandShape& command, std::ostream& out) {
  std::vector<std::string> words, places;
  bool has_places = false;
  for (const CommandShape& inner : command.commands) words.push_back(inner.name);
  for (const FlagShape& flag : command.flags) {
    has_places = has_places || flag.by_place;
    auto& list = flag.by_place ? places : words;
    const auto& more = flag.by_place ? flag.words : flag.names;
    list.insert(list.end(), more.begin(), more.end());
  }
  out << "    '" << command.full_name << "') words='" << joined(words) << "'";
  if (has_places) out << "; [[ $current == -* ]] || words='" << joined(places) << "'";
  out << " ;;\n";
  for (const CommandShape& inner : command.commands) add_bash_case(inner, out);
}

void add_bash_paths(const CommandShape& command, std::ostream& out) {
  for (const CommandShape& inner : command.commands) {
    out << "      '" << inner.full_name << "') path=$next ;;\n";
    add_bash_paths(inner, out);
  }
}

// Escapes text for '...' within a specification of _arguments or _describe.
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
std::string zsh_function(const CommandShape& command) {
  std::string name = "_" + command.full_name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// The completion of a flag's value.
std::string zsh_words(const FlagShape& flag) {
  return flag.words.empty() ? "_files" : "(" + joined(flag.words) + ")";
}

// The completion of arguments without a flag.
std::string zsh_places(const CommandShape& command) {
  for (const FlagShape& flag : command.flags) {
    if (flag.by_place && !flag.words.empty()) return zsh_words(flag);
  }
  return "_files";
}

void add_zsh_choice(const CommandShape& command, std::ostream& out) {
  out << "  local -a commands=(\n";
  for (const CommandShape& inner : command.commands) {
    out << "    '" << inner.name << ':' << zsh_text(inner.what) << "'\n";
  }
  out << "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      << "  shift words; (( CURRENT-- ))\n  case $words[1] in\n";
  for (const CommandShape& inner : command.commands) {
    out << "    " << inner.name << ") " << zsh_function(inner) << " ;;\n";
  }
  out << "  esac\n";
}

void add_zsh_function(const CommandShape& command, std::ostream& out) {
  for (const CommandShape& inner : command.commands) add_zsh_function(inner, out);
  out << zsh_function(command) << "() {\n";
  if (!command.commands.empty()) {
    add_zsh_choice(command, out);
  } else {
    out << "  _arguments \\\n";
    for (const FlagShape& flag : command.flags) {
      if (flag.by_place) continue;
      for (const std::string& name : flag.names) {
        out << "    '*" << name << '[' << zsh_text(flag.what) << ']'
            << (flag.type.empty() ? "" : ":value:" + zsh_words(flag)) << "' \\\n";
      }
    }
    out << "    '*:word:" << zsh_places(command) << "'\n";
  }
  out << "}\n";
}

}  // namespace

std::string bash_completion(const CommandShape& program) {
  std::ostringstream out;
  out << R"(# Completion of runnel for bash: made by 'runnel completion bash'.
_runnel() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path=runnel next words i
  # "--flag=word" is three words to bash.
  if [[ $current == = ]]; then
    current=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    next="$path ${COMP_WORDS[i]}"
    case $next in
)";
  add_bash_paths(program, out);
  out << "    esac\n  done\n  case \"$path $before\" in\n";
  add_bash_flags(program, out);
  out << "    *) case $path in\n";
  add_bash_case(program, out);
  out << "    esac ;;\n  esac\n"
      << "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      << "}\n"
      << "complete -o default -F _runnel runnel\n";
  return out.str();
}

std::string zsh_completion(const CommandShape& program) {
  std::ostringstream out;
  out << "#compdef runnel\n# Completion of runnel for zsh: made by 'runnel completion zsh'.\n";
  add_zsh_function(program, out);
  out << "_runnel \"$@\"\n";
  return out.str();
}

}  // namespace runnel
