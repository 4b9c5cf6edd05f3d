#include "cli/help.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cli/completion.h"
#include "cli/manual.h"

namespace runnel {
namespace {

// Finds the command under `root` that `words` name, or reports the first word that is not a
// command.
int print_help(const Command& root, const std::vector<std::string>& words, Console& console) {
  Command command = root;
  for (const std::string& word : words) {
    const CommandShape shape = command.shape();
    if (std::ranges::find(shape.commands, word, &CommandShape::name) == shape.commands.end()) {
      return fail(console, kExitUsage, unknown_command(shape, word) + "; see 'runnel --help'");
    }
    command = command.under(word);
  }
  console.out << command.help();
  return kExitOk;
}

}  // namespace

void add_help_commands(const Command& root, const std::string& version) {
  const auto words = std::make_shared<std::vector<std::string>>();
  const Command help = root.command("help", "Help of a command, as --help gives it");
  help.flag("command", *words, "The command's words");
  help.runs([root, words](Console& console) { return print_help(root, *words, console); });

  const auto shell = std::make_shared<std::string>();
  const Command completion = root.command("completion", "Completion for a shell, as a script");
  completion.flag("shell", *shell, "bash or zsh").required().one_of({"bash", "zsh"});
  completion.runs([root, shell](Console& console) {
    const CommandShape program = root.shape();
    console.out << (*shell == "bash" ? bash_completion(program) : zsh_completion(program));
    return kExitOk;
  });

  const Command man = root.command("man", "The manual page: runnel man | man -l -");
  man.runs([root, version](Console& console) {
    console.out << man_page(root.shape(), version);
    return kExitOk;
  });
}

}  // namespace runnel
