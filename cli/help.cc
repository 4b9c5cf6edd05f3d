#include "cli/help.h"

#include <memory>
#include <vector>

#include "cli/completion.h"
#include "cli/console.h"
#include "cli/flags.h"
#include "cli/manual.h"

namespace runnel {
namespace {

// Finds the command under `app` that `words` name, or reports the first word that is not a command.
int print_help(const CLI::App& app, const std::vector<std::string>& words, Console& console) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const auto found =
        command->get_subcommands([&](const CLI::App* inner) { return inner->get_name() == word; });
    if (found.empty()) {
      return fail(console, kExitUsage, unknown_command(*command, word) + "; see 'runnel --help'");
    }
    command = found.front();
  }
  console.out << command->get_formatter()->make_help(command, full_name(*command),
                                                     CLI::AppFormatMode::Normal);
  return kExitOk;
}

}  // namespace

void add_help_commands(CLI::App& app, int& exit_code, const std::string& version) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app.add_subcommand("help", "Help of a command, as --help gives it");
  help->add_option("command", *words, "The command's words");
  help->callback([&app, &exit_code, words] {
    Console console = standard_console();
    exit_code = print_help(app, *words, console);
  });

  const auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "Completion for a shell, as a script");
  completion->add_option("shell", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([&app, &exit_code, shell] {
    standard_console().out << (*shell == "bash" ? bash_completion(app) : zsh_completion(app));
    exit_code = kExitOk;
  });

  CLI::App* man = app.add_subcommand("man", "The manual page: runnel man | man -l -");
  man->callback([&app, &exit_code, version] {
    standard_console().out << man_page(app, version);
    exit_code = kExitOk;
  });
}

}  // namespace runnel
