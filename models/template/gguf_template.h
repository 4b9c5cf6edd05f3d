// The chat templates in the keys of a GGUF file.
#pragma once

#include "base/json_forward.h"
#include "models/template/template_set.h"

namespace runnel {

// Reads tokenizer.chat_template, tokenizer.chat_template.tool_use and the texts of the tokens that
// tokenizer.ggml.bos_token_id and its like name, from the members of `metadata`
// (GgufHeader::metadata). A vocabulary of RWKV without a template of its own has the built-in
// template of RWKV-7 G1. `source` is "" where there is none.
TemplateFiles gguf_template(const Json& metadata);

}  // namespace runnel
