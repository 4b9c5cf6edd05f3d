#include "cli/commands.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>

#include "base/limits.h"
#include "base/text.h"
#include "cli/load.h"

namespace runnel {
namespace {

constexpr double kLongestSeconds = 1e7;

// "" when `text` is a number of 64 bits without a sign; CLI11 by itself would wrap one that is not.
std::string check_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return "a seed is a whole number from 0 to " + std::to_string(UINT64_MAX) + ", not " +
         quote(text, 40);
}

// The check of a number of seconds; not a number is none.
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

// Flags that cannot be used, on one line like every other error.
std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  std::string line = tame(error.what());
  std::replace(line.begin(), line.end(), '\n', ' ');
  const auto chosen = app->get_subcommands();
  const std::string command = chosen.empty() ? "" : chosen.front()->get_name() + " ";
  return "runnel: " + line + "; see 'runnel " + command + "--help'\n";
}

void add_server(CLI::App& command, std::string& server) {
  command.add_option("--server", server, "Address of the server, host:port")->capture_default_str();
}

void add_timeout(CLI::App& command, double& timeout, const std::string& what) {
  command.add_option("--timeout", timeout, "Seconds " + what)
      ->check(seconds_from(0.001))
      ->capture_default_str();
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print one JSON object instead of text");
}

void add_sampling(CLI::App& command, GenerateOptions& options) {
  command
      .add_option(
          "--seed", options.seed,
          "The same seed draws the same values (default: the server draws one and tells it)")
      ->check(check_seed);
  command.add_option("--temperature", options.temperature, "Above 1 wilder, below 1 tamer");
  command.add_option("--top-k", options.top_k, "Draw from the K most likely values alone");
  command.add_option("--top-p", options.top_p, "Draw from the fewest values of this mass alone");
  command.add_option("--min-p", options.min_p,
                     "Draw from values at least this part as likely as the most likely alone");
  command.add_flag("--greedy", options.greedy, "Always the most likely value");
}

void add_generate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Draw images into a PNG sheet, or print text");
  add_server(*command, options->server);
  command->add_option("--model", options->model, "Which model, where the server has several");
  command->add_option("--count,-n", options->count, "Images or texts to draw, in one call")
      ->check(CLI::Range(int64_t{1}, limits::kSamples.max))
      ->capture_default_str();
  command->add_option("--out,-o", options->out, "PNG file to write (default: MODEL.png)");
  auto* image = command->add_option("--prompt-image", options->prompt_image,
                                    "Complete this picture: a PNG file, or IDX_FILE#ITEM");
  auto* rows = command->add_option("--rows", options->rows, "Rows of the picture that are given");
  image->needs(rows);
  rows->needs(image);
  auto* values =
      command->add_option("--values", options->values, "First values, as numbers: \"1,2,3\"")
          ->excludes(image);
  auto* prompt = command->add_option("--prompt", options->prompt, "Go on from this text")
                     ->excludes(image)
                     ->excludes(values);
  command->add_option("--prompt-file", options->prompt_file, "Go on from the text in this file")
      ->excludes(image)
      ->excludes(values)
      ->excludes(prompt);
  command->add_option("--stop", options->stop, "End where this text has been drawn; several times")
      ->allow_extra_args(false);
  command->add_option("--max-values", options->max_values,
                      "Values to draw at most (default: to the model's last position)");
  add_sampling(*command, *options);
  command->add_option("--session", options->session, "Go on where this session stands");
  command->add_flag("--keep", options->keep, "Keep the sequence as a session, and tell its name");
  command
      ->add_option("--top-log-probs", options->top_log_probs,
                   "With --json: the most likely values at each position, this many")
      ->check(CLI::Range(0, kMaxTopLogProbs));
  add_json(*command, options->json);
  add_timeout(*command, options->timeout, "that the call may take");
  command->callback([options, &exit_code] {
    Console console = standard_console();
    exit_code = run_generate(*options, console);
  });
}

void add_score(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ScoreOptions>();
  CLI::App* command =
      app.add_subcommand("score", "Bits per dimension of given images or sequences");
  command
      ->add_option("file", options->file,
                   "idx (plain or .gz; FILE#ITEM for one), PNG, or numbers as text, one "
                   "sequence per line")
      ->required();
  add_server(*command, options->server);
  command->add_option("--model", options->model, "Which model, where the server has several");
  command->add_option("--first", options->first, "Score the first N items alone")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--jobs,-j", options->jobs, "Items at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  add_json(*command, options->json);
  add_timeout(*command, options->timeout, "that one item may take");
  command->callback([options, &exit_code] {
    Console console = standard_console();
    exit_code = run_score(*options, console);
  });
}

void add_info(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<InfoOptions>();
  CLI::App* command = app.add_subcommand("info", "What a bundle is, or what a server serves");
  auto* bundle = command->add_option("bundle", options->bundle,
                                     "Directory of a bundle (default: ask the server)");
  auto* server =
      command->add_option("--server", options->server, "Address of the server, host:port")
          ->capture_default_str();
  bundle->excludes(server);
  add_json(*command, options->json);
  add_timeout(*command, options->timeout, "to wait for the server");
  command->callback([options, &exit_code] {
    Console console = standard_console();
    exit_code = run_info(*options, console);
  });
}

void add_health(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<HealthOptions>();
  CLI::App* command =
      app.add_subcommand("health", "Exit code 0 when the server serves, 1 when it does not");
  add_server(*command, options->server);
  add_json(*command, options->json);
  add_timeout(*command, options->timeout, "that one answer may take");
  command->add_option("--wait", options->wait, "Seconds to keep asking until it serves")
      ->check(seconds_from(0));
  command->callback([options, &exit_code] {
    Console console = standard_console();
    exit_code = run_health(*options, console);
  });
}

}  // namespace

void add_client_commands(CLI::App& app, int& exit_code) {
  app.failure_message(usage_error);
  add_generate(app, exit_code);
  add_score(app, exit_code);
  add_info(app, exit_code);
  add_health(app, exit_code);
  add_load(app, exit_code);
}

}  // namespace runnel
