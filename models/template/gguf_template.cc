#include "models/template/gguf_template.h"

#include <array>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "models/template/rwkv7_g1.h"

namespace runnel {
namespace {

constexpr const char* kTemplate = "tokenizer.chat_template";
constexpr const char* kToolTemplate = "tokenizer.chat_template.tool_use";
// The text that llama.cpp's converter writes for RWKV. It is the name of a template in llama.cpp's
// own code, not a source.
constexpr std::string_view kRwkvWorld = "rwkv-world";

// The names by which templates call tokens, and the keys that give these tokens.
constexpr std::array kTokens = {std::pair{"bos_token", "tokenizer.ggml.bos_token_id"},
                                std::pair{"eos_token", "tokenizer.ggml.eos_token_id"},
                                std::pair{"unk_token", "tokenizer.ggml.unknown_token_id"},
                                std::pair{"sep_token", "tokenizer.ggml.seperator_token_id"},
                                std::pair{"pad_token", "tokenizer.ggml.padding_token_id"}};

std::string text_of(const Json& metadata, const char* key) {
  const auto found = metadata.find(key);
  const bool is_text = found != metadata.end() && found->is_string();
  return is_text ? found->get<std::string>() : "";
}

std::map<std::string, std::string> tokens_of(const Json& metadata) {
  std::map<std::string, std::string> tokens;
  const auto list = metadata.find("tokenizer.ggml.tokens");
  if (list == metadata.end() || !list->is_array()) return tokens;
  for (const auto& [name, key] : kTokens) {
    const auto value = metadata.find(key);
    const bool is_there =
        value != metadata.end() && value->is_number_unsigned() && *value < list->size();
    if (!is_there) continue;
    // Texts in arrays may hold any bytes, but templates work on characters.
    const auto* token = (*list)[value->get<size_t>()].get_ptr<const std::string*>();
    if (token != nullptr && valid_utf8_prefix(*token) == token->size()) tokens[name] = *token;
  }
  return tokens;
}

}  // namespace

TemplateFiles gguf_template(const Json& metadata) {
  const std::string source = text_of(metadata, kTemplate);
  const bool is_rwkv = text_of(metadata, "tokenizer.ggml.model") == "rwkv";
  if (is_rwkv && (source.empty() || source == kRwkvWorld)) {
    return {.source = kRwkv7G1Template, .name = "rwkv7-g1", .begin = {0}};
  }
  return {.source = source,
          .name = kTemplate,
          .tool_source = text_of(metadata, kToolTemplate),
          .tool_name = kToolTemplate,
          .tokens = tokens_of(metadata)};
}

}  // namespace runnel
