// The commands of the program and their flags. A command says here what it takes, and what runs it;
// only flags.cc includes the library that parses the words.
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

// A check of a flag's word: "" where it can be used, otherwise what was expected.
using CheckWord = std::function<std::string(const std::string& word)>;

// One flag, or one word by its place, while the command is described.
class Flag {
 public:
  // `offered`: the words that completion offers.
  Flag(CLI::Option& option, std::vector<std::string>& offered)
      : option_(&option), offered_(&offered) {}

  const Flag& required() const;
  const Flag& shows_default() const;  // in the help: the value before the words are parsed
  const Flag& between(int64_t least, int64_t most) const;
  const Flag& between(double least, double most) const;
  const Flag& between(int least, int most) const { return between(int64_t{least}, int64_t{most}); }
  const Flag& one_of(const std::vector<std::string>& words) const;
  const Flag& offers(std::vector<std::string> words) const;  // without a check
  const Flag& check(CheckWord check) const;
  const Flag& separated_by_commas() const;
  const Flag& one_word_each() const;  // of a list: the flag is repeated for each word
  const Flag& from_environment(const char* variable) const;  // where no word is given
  const Flag& in_group(const char* title) const;             // of the help
  const Flag& without_type() const;                          // in the help
  const Flag& needs(const Flag& other) const;
  const Flag& excludes(const Flag& other) const;

 private:
  CLI::Option* option_;
  std::vector<std::string>* offered_;
};

// A flag as the help, the manual page and completion show it.
struct FlagShape {
  std::vector<std::string> names;  // "-n", "--count"; the name alone for a word by its place
  bool by_place = false;
  std::string type;  // of its word: "INT"; "" where it takes none
  std::string what, default_text;
  std::vector<std::string> words;  // that completion offers; empty: names of files
};

// A command likewise.
struct CommandShape {
  std::string name, full_name;  // "list", "runnel session list"
  std::string what, footer;
  std::vector<FlagShape> flags;
  std::vector<CommandShape> commands;  // under it
};

// A command while it is described: its flags, or the commands under it. Every variable that a flag
// fills outlives the parse.
class Command {
 public:
  // What all commands of a program share.
  struct Shared {
    std::map<const CLI::Option*, std::vector<std::string>> offered;  // by completion
    Console* console = nullptr;                                      // of the run
    int exit_code = 0;
  };
  Command(CLI::App& app, Shared& shared) : app_(&app), shared_(&shared) {}

  // A command under this one.
  Command command(const std::string& name, const std::string& what) const;
  Command under(const std::string& name) const;  // one that was added before
  void needs_command() const;                    // it does nothing without one of those
  // A flag with a word, or several where `to` is a list: "--count,-n"; without dashes a word by its
  // place. T is a string, a number, an optional of those, or a vector of those.
  template <typename T>
  Flag flag(const std::string& names, T& to, const std::string& what) const;
  // A flag without a word.
  Flag flag(const std::string& names, bool& to, const std::string& what) const;
  // A flag that is "true" where it has no word; "--flag=false" gives it one.
  Flag choice(const std::string& name, std::string& to, const std::string& what) const;
  void footer(const std::string& text) const;

  // What runs the command, after the parse. Gives the exit code.
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
  // `what` says in a sentence what it does, `version` is told by --version.
  Program(const std::string& what, const std::string& version);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Command root() const;

  // Parses the words and runs the command that they name. Wrong words are told on one line on err:
  // what is wrong, the nearest command or flag where one was meant, and whose --help to read. Gives
  // the exit code (console.h).
  int run(std::vector<std::string> words, Console& console);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// "there is no command 'genrate'; did you mean 'generate'?", of the commands under `command`.
std::string unknown_command(const CommandShape& command, const std::string& word);

}  // namespace runnel
