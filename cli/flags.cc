#include "cli/flags.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/text.h"
#include "client/address.h"
#include "config/edit_distance.h"

namespace runnel {
namespace {

constexpr double kLongestSeconds = 1e7;
constexpr const char* kReaching = "Reaching the server";

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string meant = nearest(word, known);
  return meant.empty() ? "" : "; did you mean '" + meant + "'?";
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::string unknown_flag(const CLI::App& command, const std::string& word) {
  const std::string flag = word.substr(0, word.find('='));
  return "'" + full_name(command) + "' has no flag " + quote(flag, 40) +
         suggestion(flag, flags_of(command));
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
  const bool has_commands = !command.get_subcommands([](const CLI::App*) { return true; }).empty();
  if (has_commands) return unknown_command(command, left.front());
  return "'" + full_name(command) + "' takes no word " + quote(left.front(), 40) + " here";
}

}  // namespace

void add_server(CLI::App& command, Target& server) {
  command.add_option("--server", server.address, "Address of the server, host:port")
      ->check(check_server)
      ->capture_default_str();
  const auto word = [&](const char* flag, std::string& to, const char* variable, const char* what) {
    command.add_option(flag, to, what)->envname(variable)->group(kReaching);
  };
  command
      .add_flag("--tls", server.tls,
                "Call by TLS; the server's certificate must be one that "
                "this system trusts, or --tls-ca")
      ->envname("RUNNEL_TLS")
      ->group(kReaching);
  word("--tls-ca", server.tls_ca, "RUNNEL_TLS_CA",
       "PEM file of the authorities whose server to trust; turns TLS on, as those below");
  word("--tls-cert", server.tls_cert, "RUNNEL_TLS_CERT",
       "PEM file of this client's certificate, where the server asks for one");
  word("--tls-key", server.tls_key, "RUNNEL_TLS_KEY", "PEM file of its private key");
  word("--tls-name", server.tls_name, "RUNNEL_TLS_NAME",
       "Name in the server's certificate, where it is not the host of --server");
  word("--api-key-file", server.api_key_file, "RUNNEL_API_KEY_FILE",
       "File of the key to call with");
  word(
      "--api-key", server.api_key, "RUNNEL_API_KEY",
      "The key itself: all users of this machine can read it in ps; --api-key-file goes before it");
  command
      .add_flag("--plaintext-key", server.plaintext_key,
                "Send the key without TLS, to another machine, too")
      ->group(kReaching);
}

void add_model(CLI::App& command, std::string& model) {
  command.add_option("--model", model, "Which model, where the server has several");
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print one JSON object instead of text");
}

void add_timeout(CLI::App& command, double& timeout, const std::string& what) {
  command.add_option("--timeout", timeout, "Seconds " + what)
      ->check(seconds_from(0.001))
      ->capture_default_str();
}

void add_max_queue_time(CLI::App& command, double& seconds) {
  command
      .add_option("--max-queue-time", seconds,
                  "Seconds that a call may wait where no state is free; 0: it is refused")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
}

std::string check_server(const std::string& text) { return check_server_address(text).message(); }

std::string check_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return "a seed is a whole number from 0 to " + std::to_string(UINT64_MAX) + ", not " +
         quote(text, 40);
}

std::function<std::string(const std::string&)> seconds_from(double least) {
  return [least](const std::string& text) -> std::string {
    double seconds = 0;
    if (CLI::detail::lexical_cast(text, seconds) && seconds >= least &&
        seconds <= kLongestSeconds) {
      return "";
    }
    return "expected seconds from " + fixed(least, least > 0 ? 3 : 0) + " to " +
           with_commas(static_cast<int64_t>(kLongestSeconds)) + ", not " + quote(text, 40);
  };
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : full_name(*parent) + " ") + command.get_name();
}

std::string unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    known.push_back(command->get_name());
  }
  return "there is no command " + quote(word, 40) + suggestion(word, known);
}

std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  const CLI::App& command = chosen_command(*app);
  std::string line = unknown_word(command);
  if (line.empty()) line = tame(error.what());
  std::replace(line.begin(), line.end(), '\n', ' ');
  return "runnel: " + line + "; see '" + full_name(command) + " --help'\n";
}

}  // namespace runnel
