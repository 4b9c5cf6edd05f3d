#include "cli/render.h"

#include <ctime>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/ordered_json.h"
#include "base/text.h"
#include "cli/common_flags.h"
#include "models/template/load_template.h"
#include "models/text/load_tokenizer.h"

namespace runnel {
namespace {

constexpr JsonLimits kRequestLimits{64 << 20, 4'000'000, 64};

Result<TemplateFiles> template_of(const RenderOptions& options) {
  if (!options.template_file) return load_template(*options.bundle);
  Result<std::string> source = read_template(*options.template_file);
  if (!source.ok()) return source.status();
  TemplateFiles files{.source = std::move(*source), .name = *options.template_file};
  if (options.tokens_file) {
    auto tokens = load_template_tokens(*options.tokens_file);
    if (!tokens.ok()) return tokens.status();
    files.tokens = std::move(*tokens);
  }
  return files;
}

// Loads the tokenizer of the bundle. Returns null if no bundle is given or it has no tokenizer.
Result<std::shared_ptr<const Tokenizer>> tokenizer_of(const RenderOptions& options) {
  if (!options.bundle) return std::shared_ptr<const Tokenizer>();
  auto tokenizer = load_tokenizer(*options.bundle);
  if (tokenizer.status().code() == Code::kNotFound) return std::shared_ptr<const Tokenizer>();
  return tokenizer;
}

Result<Conversation> conversation_of(const std::string& path) {
  const Result<std::string> text = read_file(path, kRequestLimits.bytes);
  if (!text.ok()) return text.status();
  const std::string file = quote(path, 400);
  const Result<OrderedJson> json = parse_ordered_json(*text, file, kRequestLimits);
  if (!json.ok()) return json.status();
  if (!json->is_object()) return invalid_argument(file + " is not an object");
  Conversation conversation;
  std::time_t now = std::time(nullptr);
  for (const auto& [key, value] : json->items()) {
    if (key == "messages" && value.is_array()) {
      conversation.messages = value;
    } else if (key == "tools" && (value.is_array() || value.is_null())) {
      conversation.tools = value;
    } else if (key == "variables" && value.is_object()) {
      conversation.variables = value;
    } else if (key == "add_generation_prompt" && value.is_boolean()) {
      conversation.add_generation_prompt = value.get<bool>();
    } else if (key == "now" && value.is_number_integer()) {
      now = value.get<int64_t>();
    } else {
      return invalid_argument(file + ": " + quote(key, 40) +
                              " is not a field of a request, or of another type; expected "
                              "messages and tools (arrays), variables (an object), "
                              "add_generation_prompt (true or false), now (seconds since 1970)");
    }
  }
  if (!json->contains("messages")) return invalid_argument(file + ": messages are missing");
  if (localtime_r(&now, &conversation.now) == nullptr) {
    return invalid_argument(file + ": now is " + std::to_string(now) + ", which is no time");
  }
  return conversation;
}

OrderedJson spans_of(const MarkedText& text) {
  OrderedJson spans = OrderedJson::array();
  size_t begin = 0;
  for (const TextRun& run : text.runs) {
    spans.push_back({{"begin", begin}, {"end", run.end}, {"writer", writer_name(run.writer)}});
    begin = run.end;
  }
  return spans;
}

}  // namespace

int run_render(const RenderOptions& options, Console& console) {
  if (options.bundle.has_value() == options.template_file.has_value()) {
    return fail(console, kExitUsage, "give a BUNDLE or --template, and a request");
  }
  const Result<TemplateFiles> files = template_of(options);
  if (!files.ok()) return fail(console, kExitUsage, files.status().message());
  const auto tokenizer = tokenizer_of(options);
  if (!tokenizer.ok()) return fail(console, kExitUsage, tokenizer.status().message());
  const Result<Conversation> conversation = conversation_of(options.request);
  if (!conversation.ok()) return fail(console, kExitUsage, conversation.status().message());
  const Result<TemplateSet> templates = TemplateSet::parse(*files);
  if (!templates.ok()) return fail(console, kExitFailed, templates.status().message());
  const Result<MarkedText> text = templates->render(*conversation);
  if (!text.ok()) return fail(console, kExitFailed, text.status().message());
  if (!options.json) {
    console.out << (console.out_terminal ? tame(text->bytes) : text->bytes) << std::flush;
    return kExitOk;
  }
  OrderedJson out = {{"text", text->bytes}, {"spans", spans_of(*text)}};
  if (*tokenizer != nullptr) {
    const auto values = (*tokenizer)->encode(*text);
    if (!values.ok()) return fail(console, kExitFailed, values.status().message());
    out["values"] = *values;
  }
  console.out << json_text(out) << std::endl;
  return kExitOk;
}

void add_render(const Command& root) {
  const auto options = std::make_shared<RenderOptions>();
  const auto words = std::make_shared<std::vector<std::string>>();
  const Command command =
      root.command("render", "What the messages of a chat request become for the model");
  command.flag("files", *words, "[BUNDLE] REQUEST.json: the bundle with the template, the request")
      .required();
  const Flag file =
      command.flag("--template", options->template_file, "File of a template, instead of a bundle");
  command.flag("--tokens", options->tokens_file, "JSON file with bos_token, eos_token and so on")
      .needs(file);
  add_json(command, options->json);
  command.runs([options, words](Console& console) {
    if (words->size() > 2) return fail(console, kExitUsage, "render takes [BUNDLE] REQUEST.json");
    options->request = words->back();
    if (words->size() == 2) options->bundle = words->front();
    return run_render(*options, console);
  });
}

}  // namespace runnel
