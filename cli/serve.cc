#include "cli/serve.h"

#include <iostream>
#include <memory>

namespace runnel {
namespace {

constexpr int kExitUsage = 2;

}  // namespace

Result<ServerConfig> config_of(const ServeFlags& flags) {
  ServerConfig config;
  if (!flags.config_file.empty()) {
    if (Status s = read_config_file(flags.config_file, config); !s.ok()) return s;
  }
  if (!flags.models.empty()) config.models.clear();
  for (const std::string& text : flags.models) {
    Result<ModelConfig> model = parse_model(text);
    if (!model.ok()) return model.status();
    config.models.push_back(std::move(*model));
  }
  for (const Field& field : fields()) {
    const auto word = flags.words.find(field.flag);
    if (word == flags.words.end()) continue;
    if (Status s = set_from_flag(field, word->second, config); !s.ok()) return s;
  }
  if (Status s = check_config(config); !s.ok()) return s;
  return config;
}

void add_setting(CLI::App& command, const Field& field, std::map<std::string, std::string>& words) {
  const std::string help =
      field.what + " (" + range_text(field) + "; default " + default_text(field) + ")";
  std::string& word = words[field.flag];
  if (field.kind == FieldKind::kSwitch) {
    // "--log-json" alone is true; "--log-json=false" overrides a file that says true.
    command.add_flag(field.flag + "{true}", word, help);
    return;
  }
  command.add_option(field.flag, word, help)->type_name("");
}

void add_serve_command(CLI::App& app, int& exit_code, RunServe run) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand("serve", "Serve bundles over gRPC until SIGTERM");
  command->add_option("bundles", flags->models,
                      "Directories of bundles or published models; NAME=DIRECTORY gives one "
                      "another name");
  command->add_option("--config,-c", flags->config_file,
                      "JSON file of settings (docs/configuration.md); flags override it");
  for (const Field& field : fields()) add_setting(*command, field, flags->words);
  command->callback([flags, command, run = std::move(run), &exit_code] {
    // What was not said stays at the default, or at what the file says.
    std::erase_if(flags->words, [&](const auto& word) { return command->count(word.first) == 0; });
    const Result<ServerConfig> config = config_of(*flags);
    if (!config.ok()) {
      std::cerr << "runnel serve: " << config.status().message() << '\n';
      exit_code = kExitUsage;
      return;
    }
    exit_code = run(*config, {.read = [flags] { return config_of(*flags); },
                              .on_hang_up = !flags->config_file.empty()});
  });
}

}  // namespace runnel
