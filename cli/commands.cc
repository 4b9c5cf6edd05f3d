#include "cli/commands.h"

#include <memory>

#include "base/limits.h"
#include "cli/flags.h"
#include "cli/key.h"
#include "cli/load.h"
#include "cli/session_state.h"

namespace runnel {
namespace {

CLI::Option* add_prompt_image(CLI::App& command, std::string& name, std::optional<int64_t>& rows) {
  auto* image = command.add_option("--prompt-image", name,
                                   "Complete this picture: a PNG file, or IDX_FILE#ITEM");
  auto* given = command.add_option("--rows", rows, "Rows of the picture that are given");
  image->needs(given);
  given->needs(image);
  return image;
}

void add_generate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Draw images into a PNG sheet, or print text");
  add_server(*command, options->server);
  add_model(*command, options->model);
  command->add_option("--count,-n", options->count, "Images or texts to draw, in one call")
      ->check(CLI::Range(int64_t{1}, limits::kSamples.max))
      ->capture_default_str();
  command->add_option("--out,-o", options->out, "PNG file to write (default: MODEL.png)");
  auto* image = add_prompt_image(*command, options->prompt_image, options->rows);
  auto* values =
      command->add_option("--values", options->values, "First values, as numbers: \"1,2,3\"")
          ->excludes(image);
  auto* prompt = command->add_option("--prompt", options->prompt, "Go on from this text")
                     ->excludes(image)
                     ->excludes(values);
  command
      ->add_option("--prompt-file", options->prompt_file,
                   "Go on from the text in this file; - is standard input")
      ->excludes(image)
      ->excludes(values)
      ->excludes(prompt);
  command->add_flag("--no-begin", options->no_begin,
                    "A text prompt as it is, without the model's first value before it");
  command->add_option("--stop", options->stop, "End where this text has been drawn; several times")
      ->allow_extra_args(false);
  command->add_flag("--ignore-eos", options->ignore_eos,
                    "Go on where the model would end its text");
  command->add_option("--max-values", options->max_values,
                      "Values to draw at most (default: to the model's last position)");
  add_sampling(*command, options->sampling);
  auto* session =
      command->add_option("--session", options->session, "Go on where this session stands");
  command->add_option("--from", options->from, "Go on from this stored state")->excludes(session);
  command->add_flag("--keep", options->keep, "Keep the sequence as a session, and tell its name");
  command
      ->add_option("--top-log-probs", options->top_log_probs,
                   "With --json: the most likely values at each position, this many")
      ->check(CLI::Range(0, kMaxTopLogProbs));
  add_max_queue_time(*command, options->max_queue_time);
  add_json(*command, options->json);
  add_timeout(*command, options->timeout, "that the call may take");
  command->callback([options, &exit_code] {
    Console console = standard_console();
    exit_code = run_generate(*options, console);
  });
}

void add_draw(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<DrawOptions>();
  CLI::App* command =
      app.add_subcommand("draw", "Draw one image in the terminal, while it is sampled");
  add_server(*command, options->server);
  add_model(*command, options->model);
  add_prompt_image(*command, options->prompt_image, options->rows);
  add_sampling(*command, options->sampling);
  command
      ->add_option("--seconds", options->seconds,
                   "Take this long at least, to be watched (default: as fast as it is sampled)")
      ->check(seconds_from(0));
  add_timeout(*command, options->timeout, "that the call may take");
  command->callback([options, &exit_code] {
    Console console = standard_console();
    exit_code = run_draw(*options, console);
  });
}

void add_score(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ScoreOptions>();
  CLI::App* command =
      app.add_subcommand("score", "Bits per dimension of given images or sequences");
  command
      ->add_option("file", options->file,
                   "idx (plain or .gz; FILE#ITEM for one), PNG, numbers as text, one sequence per "
                   "line, or with --text a text; - is standard input")
      ->required();
  auto* text =
      command->add_flag("--text", options->text, "The file is UTF-8 text, scored as one sequence");
  command
      ->add_flag("--no-begin", options->no_begin,
                 "The text as it is, without the model's first value before it")
      ->needs(text);
  add_server(*command, options->server);
  add_model(*command, options->model);
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

void add_session(CLI::App& app, int& exit_code) {
  CLI::App* session = app.add_subcommand("session", "The sessions that a server keeps");
  session->require_subcommand(1);
  const auto add = [&](const char* name, const char* what) {
    const auto options = std::make_shared<SessionOptions>();
    CLI::App* command = session->add_subcommand(name, what);
    add_server(*command, options->server);
    add_model(*command, options->model);
    add_timeout(*command, options->timeout, "to wait for the server");
    command->callback([options, &exit_code] {
      Console console = standard_console();
      exit_code = run_session(*options, console);
    });
    return std::pair(command, options);
  };
  const auto [list, list_options] = add("list", "Every session of a model, by name");
  add_json(*list, list_options->json);
  const auto [remove, remove_options] = add("delete", "End sessions and free their states");
  remove->add_option("id", remove_options->ids, "Names of sessions")->required();
  add_session_state_commands(*session, exit_code);
}

void add_info(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<InfoOptions>();
  CLI::App* command = app.add_subcommand("info", "What a bundle is, or what a server serves");
  auto* bundle = command->add_option("bundle", options->bundle,
                                     "Directory of a bundle (default: ask the server)");
  add_server(*command, options->server);
  bundle->excludes(command->get_option("--server"));
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

void add_reload(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ReloadOptions>();
  CLI::App* command = app.add_subcommand(
      "reload", "Have a server read its models again; needs a key that is marked admin");
  add_server(*command, options->server);
  add_json(*command, options->json);
  add_timeout(*command, options->timeout, "that the models may take to load");
  command->callback([options, &exit_code] {
    Console console = standard_console();
    exit_code = run_reload(*options, console);
  });
}

}  // namespace

void add_client_commands(CLI::App& app, int& exit_code) {
  app.failure_message(usage_error);
  add_generate(app, exit_code);
  add_draw(app, exit_code);
  add_score(app, exit_code);
  add_session(app, exit_code);
  add_info(app, exit_code);
  add_health(app, exit_code);
  add_reload(app, exit_code);
  add_key(app, exit_code);
  add_load(app, exit_code);
}

}  // namespace runnel
