// The commands of the program and their flags. Each command uses these classes to describe its
// flags and to set the function that runs it. Only flags.cc includes the library that parses the
// command line.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/console.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace runnel {

// Checks a flag's value. Returns "" if it is valid, otherwise a text that says what was expected.
using CheckWord = std::function<std::string(const std::string& word)>;

// One flag, or one positional argument, while the command is being described.
class Flag {
 public:
  // `offered`: the words that completion offers.
  Flag(CLI::Option& option, std::vector<std::string>& offered)
      : option_(&option), offered_(&offered) {}

  const Flag& required() const;
  const Flag& shows_default() const;  // in the help: the variable's value before the parse
  const Flag& between(int64_t least, int64_t most) const;
  const Flag& between(double least, double most) const;
  const Flag& between(int least, int most) const { return between(int64_t{least}, int64_t{most}); }
  const Flag& one_of(const std::vector<std::string>& words) const;
  const Flag& offers(std::vector<std::string> words) const;  // without a check
  const Flag& check(CheckWord check) const;
  const Flag& separated_by_commas() const;
  const Flag& one_word_each() const;  // for a list: the flag is repeated for each value
  const Flag& from_environment(const char* variable) const;  // if the flag is not given
  const Flag& clears(std::string& other) const;              // if the flag is given
  const Flag& in_group(const char* title) const;             // a group in the help
  const Flag& without_type() const;                          // in the help
  const Flag& needs(const Flag& other) const;
  const Flag& excludes(const Flag& other) const;

 private:
  CLI::Option* option_;
  std::vector<std::string>* offered_;
};

// A flag, for the help, the manual page and completion.
struct FlagShape {
  std::vector<std::string> names;  // "-n", "--count"; only the name for a positional argument
  bool by_place = false;
  std::string type;  // of its value: "INT"; "" if it takes no value
  std::string what, default_text;
  std::vector<std::string> words;  // that completion offers; empty: file names
};

// A command, for the same purposes.
struct CommandShape {
  std::string name, full_name;  // "list", "runnel session list"
  std::string what, footer;
  std::vector<FlagShape> flags;
  std::vector<CommandShape> commands;  // its subcommands
};

// A command while it is being described: its flags, or its subcommands. Every variable that a flag
// sets must outlive the parse.
class Command {
 public:
  // Data that all commands of a program share.
  struct Shared {
    std::map<const CLI::Option*, std::vector<std::string>> offered;  // by completion
    Console* console = nullptr;                                      // of the run
    int exit_code = 0;
  };
  Command(CLI::App& app, Shared& shared) : app_(&app), shared_(&shared) {}

  // Adds a subcommand.
  Command command(const std::string& name, const std::string& what) const;
  Command under(const std::string& name) const;  // a subcommand that was added before
  void needs_command() const;                    // a subcommand is required
  // Adds a flag with a value, or with several if `to` is a list: "--count,-n". A name without
  // dashes is a positional argument. T is a string, a number, an optional of those, or a vector of
  // those.
  template <typename T>
  Flag flag(const std::string& names, T& to, const std::string& what) const;
  // Adds a flag without a value.
  Flag flag(const std::string& names, bool& to, const std::string& what) const;
  // Adds a flag whose value is "true" if none is given; "--flag=false" gives a value.
  Flag choice(const std::string& name, std::string& to, const std::string& what) const;
  void footer(const std::string& text) const;

  // Sets the function that runs the command after the parse. It returns the exit code.
  void runs(std::function<int(Console& console)> run) const;

  bool given(const std::string& flag) const;  // after the parse
  std::string help() const;
  CommandShape shape() const;

 private:
  Flag described(CLI::Option& option) const;

  CLI::App* app_;
  Shared* shared_;
};

// The whole program.
class Program {
 public:
  // `what` describes the program in a sentence; --version prints `version`.
  Program(const std::string& what, const std::string& version);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Command root() const;

  // Parses the words and runs the command that they name. If the words are invalid, writes one line
  // to err: the mistake, the nearest command or flag if one was probably meant, and the --help to
  // read. Returns the exit code (console.h).
  int run(std::vector<std::string> words, Console& console);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// The message "there is no command 'genrate'; did you mean 'generate'?" for the subcommands of
// `command`.
std::string unknown_command(const CommandShape& command, const std::string& word);

}  // namespace runnel
