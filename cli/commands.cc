#include "cli/commands.h"

#include <memory>

#include "base/limits.h"
#include "cli/chat.h"
#include "cli/common_flags.h"
#include "cli/key.h"
#include "cli/load.h"
#include "cli/quantize.h"
#include "cli/render.h"
#include "cli/session_state.h"

namespace runnel {
namespace {

Flag add_prompt_image(const Command& command, std::string& name, std::optional<int64_t>& rows) {
  const Flag image =
      command.flag("--prompt-image", name, "Complete this picture: a PNG file, or IDX_FILE#ITEM");
  const Flag given = command.flag("--rows", rows, "Rows of the picture that are given");
  image.needs(given);
  given.needs(image);
  return image;
}

void add_generate(const Command& root) {
  const auto options = std::make_shared<GenerateOptions>();
  const Command command = root.command("generate", "Draw images into a PNG sheet, or print text");
  add_server(command, options->server);
  add_model(command, options->model);
  command.flag("--count,-n", options->count, "Images or texts to draw, in one call")
      .between(int64_t{1}, limits::kSamples.max)
      .shows_default();
  command.flag("--out,-o", options->out, "PNG file to write (default: MODEL.png)");
  const Flag image = add_prompt_image(command, options->prompt_image, options->rows);
  const Flag values =
      command.flag("--values", options->values, "First values, as numbers: \"1,2,3\"")
          .excludes(image);
  const Flag prompt = command.flag("--prompt", options->prompt, "Continue this text")
                          .excludes(image)
                          .excludes(values);
  command
      .flag("--prompt-file", options->prompt_file,
            "Continue the text in this file; - is standard input")
      .excludes(image)
      .excludes(values)
      .excludes(prompt);
  command.flag("--no-begin", options->no_begin,
               "Do not put the model's first value before a text prompt");
  command.flag("--stop", options->stop, "Stop when the output contains this text; may be repeated")
      .one_word_each();
  command.flag("--ignore-eos", options->ignore_eos,
               "Continue after a value with which the model ends a text");
  command.flag("--max-values", options->max_values,
               "Most values to sample (default: up to the model's last position)");
  add_sampling(command, options->sampling);
  add_penalties(command, options->sampling);
  const Flag session = command.flag("--session", options->session, "Continue this session");
  command.flag("--from", options->from, "Start from this stored state").excludes(session);
  command.flag("--keep", options->keep,
               "Keep the sequence as a session: the one of --session, which is made if it does not "
               "exist, or a new one, whose name is printed");
  command
      .flag("--top-log-probs", options->top_log_probs,
            "With --json: the number of most likely values to print at each position")
      .between(0, kMaxTopLogProbs);
  add_max_queue_time(command, options->max_queue_time);
  add_json(command, options->json);
  add_timeout(command, options->timeout, "that the call may take");
  command.runs([options](Console& console) { return run_generate(*options, console); });
}

void add_draw(const Command& root) {
  const auto options = std::make_shared<DrawOptions>();
  const Command command =
      root.command("draw", "Draw one image in the terminal, while it is sampled");
  add_server(command, options->server);
  add_model(command, options->model);
  add_prompt_image(command, options->prompt_image, options->rows);
  add_sampling(command, options->sampling);
  command
      .flag("--seconds", options->seconds,
            "Draw slowly, over at least this many seconds (default: as fast as possible)")
      .check(seconds_from(0));
  add_timeout(command, options->timeout, "that the call may take");
  command.runs([options](Console& console) { return run_draw(*options, console); });
}

void add_score(const Command& root) {
  const auto options = std::make_shared<ScoreOptions>();
  const Command command =
      root.command("score", "Compute the bits per dimension of given images or sequences");
  command
      .flag("file", options->file,
            "idx (plain or .gz; FILE#ITEM for one), PNG, numbers as text, one sequence per "
            "line, or with --text a text; - is standard input")
      .required();
  const Flag text =
      command.flag("--text", options->text, "The file is UTF-8 text, scored as one sequence");
  command
      .flag("--no-begin", options->no_begin, "Do not put the model's first value before the text")
      .needs(text);
  add_server(command, options->server);
  add_model(command, options->model);
  command.flag("--first", options->first, "Score only the first N items")
      .excludes(text)
      .between(int64_t{1}, int64_t{1} << 40);
  command.flag("--jobs,-j", options->jobs, "Number of items to score at the same time")
      .between(1, 256)
      .shows_default();
  add_json(command, options->json);
  add_timeout(command, options->timeout, "that one item may take");
  command.runs([options](Console& console) { return run_score(*options, console); });
}

void add_session(const Command& root) {
  const Command session = root.command("session", "The sessions that a server keeps");
  session.needs_command();
  const auto add = [&](const char* name, const char* what) {
    const auto options = std::make_shared<SessionOptions>();
    const Command command = session.command(name, what);
    add_server(command, options->server);
    add_model(command, options->model);
    add_timeout(command, options->timeout, "to wait for the server");
    command.runs([options](Console& console) { return run_session(*options, console); });
    return std::pair(command, options);
  };
  const auto [list, list_options] =
      add("list", "List all sessions of a model, or of all models, sorted by name");
  add_json(list, list_options->json);
  const auto [show, show_options] = add("show", "Show sessions by name, with their positions");
  show.flag("id", show_options->ids, "Names of sessions").required();
  show_options->shows = true;
  add_json(show, show_options->json);
  const auto [remove, remove_options] = add("delete", "End sessions and free their states");
  remove.flag("id", remove_options->ids, "Names of sessions").required();
  add_session_state_commands(session);
}

void add_info(const Command& root) {
  const auto options = std::make_shared<InfoOptions>();
  const Command command = root.command("info", "Describe a bundle, or the models of a server");
  const Flag bundle = command.flag(
      "bundle", options->bundle, "Directory of a bundle, or a GGUF file (default: ask the server)");
  bundle.excludes(add_server(command, options->server));
  add_json(command, options->json);
  add_timeout(command, options->timeout, "to wait for the server");
  command.runs([options](Console& console) { return run_info(*options, console); });
}

void add_health(const Command& root) {
  const auto options = std::make_shared<HealthOptions>();
  const Command command =
      root.command("health", "Check a server: exit code 0 if it serves, 1 if it does not");
  add_server(command, options->server);
  add_json(command, options->json);
  add_timeout(command, options->timeout, "that one answer may take");
  command.flag("--wait", options->wait, "Seconds to wait until the server serves")
      .check(seconds_from(0));
  command.runs([options](Console& console) { return run_health(*options, console); });
}

void add_reload(const Command& root) {
  const auto options = std::make_shared<ReloadOptions>();
  const Command command = root.command(
      "reload", "Have a server read its models again; needs a key that is marked admin");
  add_server(command, options->server);
  add_json(command, options->json);
  add_timeout(command, options->timeout, "that the models may take to load");
  command.runs([options](Console& console) { return run_reload(*options, console); });
}

}  // namespace

void add_client_commands(const Command& root) {
  add_generate(root);
  add_chat(root);
  add_draw(root);
  add_score(root);
  add_session(root);
  add_info(root);
  add_health(root);
  add_reload(root);
  add_key(root);
  add_render(root);
  add_quantize(root);
  add_load(root);
}

}  // namespace runnel
