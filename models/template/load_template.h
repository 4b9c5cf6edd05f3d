// The chat templates of a model's directory or GGUF file, and the tokens that they name.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "models/template/chat_format.h"
#include "models/template/template_set.h"
#include "models/text/tokenizer.h"

namespace runnel {

// Reads chat_template.jinja and additional_chat_templates/tool_use.jinja; without the first,
// chat_template of tokenizer_config.json: a text, or a list of {name, template} with `default` and
// `tool_use`; without that, where the vocabulary is RWKV's, the built-in template of RWKV-7 G1.
// The path of a GGUF file: its keys (gguf_template.h). NOT_FOUND where there is no template;
// INVALID_ARGUMENT, naming the file, where one cannot be read.
Result<TemplateFiles> load_template(const std::string& path);

// Reads one template. Errors as of read_file(), which name the file.
Result<std::string> read_template(const std::string& path);

// The members of a file like tokenizer_config.json that are tokens: texts, or objects with
// `content`.
Result<std::map<std::string, std::string>> load_template_tokens(const std::string& path);

// The format of the model at `path`; with `own`, of the template in that file, with the model's
// tokens. Errors as of load_template(), read_template() and ChatFormat::make().
Result<std::shared_ptr<const ChatFormat>> load_chat_format(
    const std::string& path, std::shared_ptr<const Tokenizer> tokenizer,
    const std::string& own = "");

}  // namespace runnel
