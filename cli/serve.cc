#include "cli/serve.h"

#include <memory>

#include "base/text.h"

namespace runnel {
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
  for (const std::string& text : flags.chat_templates) {
    if (Status s = set_chat_template(text, config.models); !s.ok()) return s;
  }
  for (const Field& field : setting_fields()) {
    for (const std::string& flag : {field.old_flag, field.flag}) {
      const auto word = flags.words.find(flag);
      if (word == flags.words.end()) continue;
      if (flag != field.flag)
        config.old_names.push_back(flag + " is called " + field.flag + " now");
      if (Status s = set_from_flag(field, word->second, config); !s.ok()) return s;
    }
  }
  if (Status s = check_config(config); !s.ok()) return s;
  return config;
}

void add_setting(const Command& command, const Field& field,
                 std::map<std::string, std::string>& words) {
  const std::string help =
      field.what + " (" + range_text(field) + "; default " + default_text(field) + ")";
  std::string& word = words[field.flag];
  if (field.kind == FieldKind::kSwitch) {
    // "--log-json" alone is true; "--log-json=false" overrides a file that says true.
    command.choice(field.flag, word, help);
    return;
  }
  command.flag(field.flag, word, help).without_type().offers(field.choices);
  if (field.old_flag.empty()) return;
  command.flag(field.old_flag, words[field.old_flag], "Old name of " + field.flag)
      .without_type()
      .offers(field.choices);
}

void add_serve_command(const Command& root, RunServe run) {
  const auto flags = std::make_shared<ServeFlags>();
  const Command command = root.command(
      "serve", "Serve models over gRPC, and over HTTP with --http-address, until SIGTERM");
  command.flag("bundles", flags->models,
               "Directories of bundles or published models, or GGUF files; NAME=PATH gives one "
               "another name");
  command.flag("--config,-c", flags->config_file,
               "JSON file of settings (docs/configuration.md); flags override it");
  command
      .flag("--chat-template", flags->chat_templates,
            "NAME=FILE: a chat template for the model of that name, in place of its own")
      .one_word_each();
  for (const Field& field : setting_fields()) add_setting(command, field, flags->words);
  command.runs([flags, command, run = std::move(run)](Console& console) {
    // An absent flag leaves the file's value or the default.
    std::erase_if(flags->words, [&](const auto& word) { return !command.given(word.first); });
    const Result<ServerConfig> config = config_of(*flags);
    if (!config.ok()) {
      console.err << "runnel serve: " << tame(config.status().message()) << '\n';
      return kExitUsage;
    }
    return run(*config, {.read = [flags] { return config_of(*flags); },
                         .on_hang_up = !flags->config_file.empty()});
  });
}

}  // namespace runnel
