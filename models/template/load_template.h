// Loads the chat templates of a model's directory or GGUF file, and the tokens that they name.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "models/template/chat_format.h"
#include "models/template/template_set.h"
#include "models/text/tokenizer.h"

namespace runnel {

// The file of a directory's template for requests with tools.
inline constexpr const char* kToolTemplateFile = "additional_chat_templates/tool_use.jinja";

// Reads the templates of a directory. The first of these that exists is used:
// - chat_template.jinja, with additional_chat_templates/tool_use.jinja;
// - chat_template of tokenizer_config.json: a text, or a list of {name, template} with `default`
//   and `tool_use`;
// - if the vocabulary is RWKV's, the built-in template of RWKV-7 G1.
// If `path` is a GGUF file, reads its keys (gguf_template.h). NOT_FOUND if there is no template.
// INVALID_ARGUMENT names the file that cannot be read.
Result<TemplateFiles> load_template(const std::string& path);

// Reads one template. Errors are those of read_file(), which name the file.
Result<std::string> read_template(const std::string& path);

// The tokens in a file such as tokenizer_config.json: the members that are texts, or objects with
// `content`.
Result<std::map<std::string, std::string>> load_template_tokens(const std::string& path);

// Loads the chat format of the model at `path`. With `own`, the template is read from that file,
// and the tokens from the model. Errors are those of load_template(), read_template() and
// ChatFormat::make(), but NOT_FOUND does not name the path.
Result<std::shared_ptr<const ChatFormat>> load_chat_format(
    const std::string& path, std::shared_ptr<const Tokenizer> tokenizer,
    const std::string& own = "");

}  // namespace runnel
