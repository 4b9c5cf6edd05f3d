// Reads the chat templates in the keys of a GGUF file.
#pragma once

#include "base/json_forward.h"
#include "models/template/template_set.h"

namespace runnel {

// Reads from the members of `metadata` (GgufHeader::metadata):
// - tokenizer.chat_template and tokenizer.chat_template.tool_use;
// - the texts of the tokens that tokenizer.ggml.bos_token_id and similar keys name.
// An RWKV vocabulary without a template of its own gets the built-in template of RWKV-7 G1.
// `source` is "" if there is no template.
TemplateFiles gguf_template(const Json& metadata);

}  // namespace runnel
