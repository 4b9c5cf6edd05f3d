#include "models/template/load_template.h"

#include <filesystem>

#include "base/file.h"
#include "base/limits.h"
#include "base/ordered_json.h"
#include "base/text.h"
#include "models/bundle/gguf.h"
#include "models/bundle/weight_file.h"
#include "models/template/gguf_template.h"
#include "models/template/limits.h"
#include "models/template/rwkv7_g1.h"

namespace runnel {
namespace {

constexpr JsonLimits kConfigLimits{kMaxConfigBytes, 4'000'000, 32};
constexpr std::string_view kDefault = "default", kToolUse = "tool_use";
constexpr const char* kConfig = "tokenizer_config.json";

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Result<OrderedJson> read_object(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  Result<OrderedJson> json = parse_ordered_json(*text, quote(path, 400), kConfigLimits);
  if (json.ok() && !json->is_object()) {
    return invalid_argument(quote(path, 400) + " is not an object");
  }
  return json;
}

std::map<std::string, std::string> tokens_of(const OrderedJson& json) {
  std::map<std::string, std::string> tokens;
  for (const auto& [key, value] : json.items()) {
    if (!key.ends_with("_token")) continue;
    const bool wrapped = value.is_object() && value.contains("content");
    const OrderedJson& text = wrapped ? value["content"] : value;
    if (text.is_string()) tokens[key] = text.get<std::string>();
  }
  return tokens;
}

// The template named `name` in `chat_template` of a tokenizer_config.json; "" if it is missing. A
// template outside of a list is the default.
std::string template_of(const OrderedJson& json, std::string_view name) {
  const auto found = json.find("chat_template");
  if (found == json.end()) return "";
  if (found->is_string()) return name == kDefault ? found->get<std::string>() : "";
  if (!found->is_array()) return "";
  for (const OrderedJson& entry : *found) {
    const bool is_template = entry.is_object() && entry.contains("name") &&
                             entry.contains("template") && entry["template"].is_string();
    if (is_template && entry["name"] == name) return entry["template"].get<std::string>();
  }
  return "";
}

// Reads templates and tokens from tokenizer_config.json and special_tokens_map.json, if these
// exist.
Status read_configs(const std::string& directory, TemplateFiles& files) {
  for (const char* const name : {"special_tokens_map.json", kConfig}) {
    const std::string path = directory + "/" + name;
    if (!is_there(path)) continue;
    const Result<OrderedJson> json = read_object(path);
    if (!json.ok()) return json.status();
    for (auto& [key, token] : tokens_of(*json)) files.tokens[key] = token;
    if (name != std::string_view(kConfig)) continue;
    files.source = template_of(*json, kDefault);
    files.tool_source = template_of(*json, kToolUse);
    files.name = kConfig;
    files.tool_name = std::string(kConfig) + ", " + std::string(kToolUse);
  }
  return {};
}

// Templates in their own files replace those of tokenizer_config.json.
Status read_own(const std::string& directory, TemplateFiles& files) {
  const std::string own = "chat_template.jinja";
  const std::string tool = kToolTemplateFile;
  if (!is_there(directory + "/" + own)) return {};
  Result<std::string> source = read_template(directory + "/" + own);
  if (!source.ok()) return source.status();
  files.source = std::move(*source);
  files.name = own;
  files.tool_source.clear();
  if (!is_there(directory + "/" + tool)) return {};
  source = read_template(directory + "/" + tool);
  if (!source.ok()) return source.status();
  files.tool_source = std::move(*source);
  files.tool_name = tool;
  return {};
}

Result<TemplateFiles> template_in_gguf(const std::string& path) {
  const auto file = WeightFile::open(path);
  if (!file.ok()) return file.status();
  return gguf_template(file->metadata());
}

Result<TemplateFiles> template_in_directory(const std::string& directory) {
  TemplateFiles files;
  if (Status s = read_configs(directory, files); !s.ok()) return s;
  if (Status s = read_own(directory, files); !s.ok()) return s;
  const bool is_rwkv =
      is_there(directory + "/rwkv_vocab_v20230424.txt") && !is_there(directory + "/tokenizer.json");
  if (files.source.empty() && is_rwkv) {
    files = {.source = kRwkv7G1Template, .name = "rwkv7-g1", .begin = {0}};
  }
  return files;
}

// The source is empty if there is no template.
Result<TemplateFiles> templates_of(const std::string& path) {
  return is_gguf(path) ? template_in_gguf(path) : template_in_directory(path);
}

}  // namespace

Result<std::map<std::string, std::string>> load_template_tokens(const std::string& path) {
  const Result<OrderedJson> json = read_object(path);
  if (!json.ok()) return json.status();
  return tokens_of(*json);
}

Result<std::string> read_template(const std::string& path) {
  return read_file(path, jinja::kMaxSourceBytes);
}

Result<TemplateFiles> load_template(const std::string& path) {
  Result<TemplateFiles> files = templates_of(path);
  if (files.ok() && files->source.empty()) {
    return not_found(quote(path, 400) + " has no chat template");
  }
  return files;
}

Result<std::shared_ptr<const ChatFormat>> load_chat_format(
    const std::string& path, std::shared_ptr<const Tokenizer> tokenizer, const std::string& own) {
  if (own.empty()) {
    const Result<TemplateFiles> files = templates_of(path);
    if (!files.ok()) return files.status();
    // Every report of this names the model. Clients see it, so the path is left out.
    if (files->source.empty()) return not_found("there is no template among its files");
    return ChatFormat::make(*files, std::move(tokenizer));
  }
  Result<TemplateFiles> files = TemplateFiles{};
  if (is_gguf(path)) {
    files = template_in_gguf(path);
  } else if (Status s = read_configs(path, *files); !s.ok()) {
    return s;
  }
  if (!files.ok()) return files.status();
  Result<std::string> source = read_template(own);
  if (!source.ok()) return source.status();
  // Callers see the name, so the folders above are left out.
  return ChatFormat::make({.source = std::move(*source),
                           .name = std::filesystem::path(own).filename().string(),
                           .tokens = std::move(files->tokens)},
                          std::move(tokenizer));
}

}  // namespace runnel
