#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "config/edit_distance.h"

namespace runnel {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "runnel session list": the full name of the command.
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : full_name(*parent) + " ") + command.get_name();
}

// "INT" for CLI11's "INT:{1,2}"; "" for a flag without a value.
std::string type_of(const CLI::Option& option) {
  if (option.get_type_size() == 0 || option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const std::string word = type.substr(0, type.find_first_of(": "));
  return word.empty() ? "TEXT" : word;
}

using Offered = std::map<const CLI::Option*, std::vector<std::string>>;

FlagShape shape_of(const CLI::Option& option, const Offered& offered) {
  FlagShape shape;
  shape.by_place = option.get_positional();
  shape.type = type_of(option);
  shape.what = option.get_description();
  shape.default_text = option.get_default_str();
  for (const std::string& name : option.get_snames()) shape.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) shape.names.push_back("--" + name);
  if (shape.by_place) shape.names = {option.get_name(true)};
  if (const auto found = offered.find(&option); found != offered.end()) shape.words = found->second;
  return shape;
}

CommandShape shape_of(const CLI::App& app, const Offered& offered) {
  CommandShape shape;
  shape.name = app.get_name();
  shape.full_name = full_name(app);
  shape.what = app.get_description();
  shape.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options())
    shape.flags.push_back(shape_of(*option, offered));
  for (const CLI::App* command : commands_of(app))
    shape.commands.push_back(shape_of(*command, offered));
  return shape;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string meant = nearest(word, known);
  return meant.empty() ? "" : "; did you mean '" + meant + "'?";
}

std::string unknown_flag(const CLI::App& command, const std::string& word) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  const std::string flag = word.substr(0, word.find('='));
  return "'" + full_name(command) + "' has no flag " + quote(flag, 40) + suggestion(flag, flags);
}

// The innermost command on the command line: for "session list", list rather than session.
const CLI::App& chosen_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

// Describes the first word that no command or option has taken; "" if there is none.
std::string unknown_word(const CLI::App& command) {
  const std::vector<std::string> left = command.remaining();
  if (left.empty()) return "";
  if (left.front().starts_with('-')) return unknown_flag(command, left.front());
  if (!commands_of(command).empty()) return unknown_command(shape_of(command, {}), left.front());
  return "'" + full_name(command) + "' takes no word " + quote(left.front(), 40) + " here";
}

// The usage error for words that cannot be used, as one line.
std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  const CLI::App& command = chosen_command(*app);
  std::string line = unknown_word(command);
  if (line.empty()) line = tame(error.what());
  std::replace(line.begin(), line.end(), '\n', ' ');
  return "runnel: " + line + "; see '" + full_name(command) + " --help'\n";
}

// The type of a flag's number, or of the elements of its list.
template <typename T>
struct NumberOf {
  using Type = T;
};
template <typename T>
struct NumberOf<std::optional<T>> {
  using Type = T;
};
template <typename T>
struct NumberOf<std::vector<T>> {
  using Type = T;
};

// Refuses words that CLI11 reads as another whole number than a person does: it reads "010" as 8,
// and a number that is too large as the largest one of its type.
template <typename Number>
std::string check_whole_number(const std::string& word) {
  Number number = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  if (error == std::errc::result_out_of_range) return quote(word, 40) + " is out of range";
  if (error == std::errc() && rest == end && word == std::to_string(number)) return "";
  return "expected a whole number, not " + quote(word, 40);
}

// Adds the flags of all commands that take a value.
void add_valued_flags(const CommandShape& command, std::set<std::string>& flags) {
  for (const FlagShape& flag : command.flags) {
    if (!flag.type.empty()) flags.insert(flag.names.begin(), flag.names.end());
  }
  for (const CommandShape& inner : command.commands) add_valued_flags(inner, flags);
}

// "--flag=" as two words, the second of them empty. CLI11 would take the next word for the value.
std::vector<std::string> split_empty_values(const std::vector<std::string>& words,
                                            const CommandShape& program) {
  std::set<std::string> flags;
  add_valued_flags(program, flags);
  std::vector<std::string> all;
  for (const std::string& word : words) {
    const std::string flag = word.substr(0, word.find('='));
    const bool is_empty = word.size() == flag.size() + 1 && flags.contains(flag);
    all.push_back(is_empty ? flag : word);
    if (is_empty) all.emplace_back();
  }
  return all;
}

}  // namespace

const Flag& Flag::required() const {
  option_->required();
  return *this;
}
const Flag& Flag::shows_default() const {
  option_->capture_default_str();
  return *this;
}
const Flag& Flag::between(int64_t least, int64_t most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}
const Flag& Flag::between(double least, double most) const {
  option_->check(CLI::Range(least, most));
  // CLI11 finds nan in every range.
  return check([](const std::string& word) {
    const bool is_number = !std::isnan(std::strtod(word.c_str(), nullptr));
    return is_number ? "" : "expected a number, not " + quote(word, 40);
  });
}
const Flag& Flag::one_of(const std::vector<std::string>& words) const {
  option_->check(CLI::IsMember(words));
  return offers(words);
}
const Flag& Flag::offers(std::vector<std::string> words) const {
  *offered_ = std::move(words);
  return *this;
}
const Flag& Flag::check(CheckWord check) const {
  option_->check(std::move(check));
  return *this;
}
const Flag& Flag::separated_by_commas() const {
  option_->delimiter(',');
  return *this;
}
const Flag& Flag::one_word_each() const {
  option_->allow_extra_args(false);
  return *this;
}
const Flag& Flag::from_environment(const char* variable) const {
  option_->envname(variable);
  return *this;
}
const Flag& Flag::clears(std::string& other) const {
  option_->each([&other](const std::string& /*word*/) { other.clear(); });
  return *this;
}
const Flag& Flag::in_group(const char* title) const {
  option_->group(title);
  return *this;
}
const Flag& Flag::without_type() const {
  option_->type_name("");
  return *this;
}
const Flag& Flag::needs(const Flag& other) const {
  option_->needs(other.option_);
  return *this;
}
const Flag& Flag::excludes(const Flag& other) const {
  option_->excludes(other.option_);
  return *this;
}

Flag Command::described(CLI::Option& option) const { return {option, shared_->offered[&option]}; }

Command Command::command(const std::string& name, const std::string& what) const {
  return {*app_->add_subcommand(name, what), *shared_};
}

Command Command::under(const std::string& name) const {
  return {*app_->get_subcommand(name), *shared_};
}

void Command::needs_command() const { app_->require_subcommand(1); }

template <typename T>
Flag Command::flag(const std::string& names, T& to, const std::string& what) const {
  const Flag flag = described(*app_->add_option(names, to, what));
  using Number = typename NumberOf<T>::Type;
  if constexpr (std::is_integral_v<Number>) flag.check(check_whole_number<Number>);
  return flag;
}

template Flag Command::flag(const std::string&, std::string&, const std::string&) const;
template Flag Command::flag(const std::string&, int&, const std::string&) const;
template Flag Command::flag(const std::string&, int64_t&, const std::string&) const;
template Flag Command::flag(const std::string&, uint64_t&, const std::string&) const;
template Flag Command::flag(const std::string&, double&, const std::string&) const;
template Flag Command::flag(const std::string&, std::optional<std::string>&,
                            const std::string&) const;
template Flag Command::flag(const std::string&, std::optional<int>&, const std::string&) const;
template Flag Command::flag(const std::string&, std::optional<int64_t>&, const std::string&) const;
template Flag Command::flag(const std::string&, std::optional<uint64_t>&, const std::string&) const;
template Flag Command::flag(const std::string&, std::optional<float>&, const std::string&) const;
template Flag Command::flag(const std::string&, std::optional<double>&, const std::string&) const;
template Flag Command::flag(const std::string&, std::vector<std::string>&,
                            const std::string&) const;
template Flag Command::flag(const std::string&, std::vector<int>&, const std::string&) const;
template Flag Command::flag(const std::string&, std::vector<int64_t>&, const std::string&) const;
template Flag Command::flag(const std::string&, std::vector<double>&, const std::string&) const;

Flag Command::flag(const std::string& names, bool& to, const std::string& what) const {
  return described(*app_->add_flag(names, to, what));
}

Flag Command::choice(const std::string& name, std::string& to, const std::string& what) const {
  return described(*app_->add_flag(name + "{true}", to, what));
}

void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::runs(std::function<int(Console& console)> run) const {
  app_->callback(
      [shared = shared_, run = std::move(run)] { shared->exit_code = run(*shared->console); });
}

bool Command::given(const std::string& flag) const { return app_->count(flag) > 0; }

std::string Command::help() const {
  return app_->get_formatter()->make_help(app_, full_name(*app_), CLI::AppFormatMode::Normal);
}

CommandShape Command::shape() const { return shape_of(*app_, shared_->offered); }

struct Program::Parser {
  CLI::App app;
  Command::Shared shared = {};
};

Program::Program(const std::string& what, const std::string& version)
    : parser_(new Parser{.app = CLI::App(what, "runnel")}) {
  parser_->app.set_version_flag("--version", "runnel " + version);
  parser_->app.require_subcommand(1);
  parser_->app.failure_message(usage_error);
}

Program::~Program() = default;

Command Program::root() const { return {parser_->app, parser_->shared}; }

int Program::run(std::vector<std::string> words, Console& console) {
  parser_->shared.console = &console;
  words = split_empty_values(words, root().shape());
  std::reverse(words.begin(), words.end());  // CLI11 takes the vector in reverse order
  try {
    parser_->app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {  // also thrown for --help and --version
    return parser_->app.exit(error, console.out, console.err) == 0 ? kExitOk : kExitUsage;
  }
  return parser_->shared.exit_code;
}

std::string unknown_command(const CommandShape& command, const std::string& word) {
  std::vector<std::string> known;
  for (const CommandShape& inner : command.commands) known.push_back(inner.name);
  return "there is no command " + quote(word, 40) + suggestion(word, known);
}

}  // namespace runnel
