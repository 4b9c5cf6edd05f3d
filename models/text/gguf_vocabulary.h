// Reads the vocabulary from the keys of a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json_forward.h"
#include "base/status.h"
#include "models/text/tokenizer.h"

namespace runnel {

struct GgufVocabulary {
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // null: the file has no vocabulary
  int64_t tokens = 0;                                    // padding included
  std::vector<int32_t> eos = {};  // values that end a text, from separate keys
};

// Reads the keys that begin with "tokenizer.ggml." from the members of `metadata`
// (GgufHeader::metadata). It supports the models `rwkv` and `gpt2`, the latter with the splits of
// docs/bundle.md. INVALID_ARGUMENT names `file`, the key, what was expected and what was found.
// Something that is not supported is an error, too.
Result<GgufVocabulary> read_gguf_vocabulary(const Json& metadata, const std::string& file);

}  // namespace runnel
