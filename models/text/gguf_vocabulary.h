// The vocabulary in the keys of a GGUF file.
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
  std::vector<int32_t> eos = {};  // values that end a text, by keys of their own
};

// Reads the keys that begin with "tokenizer.ggml." from the members of `metadata`
// (GgufHeader::metadata): the models `rwkv` and `gpt2`, the latter with the splits of
// docs/bundle.md. INVALID_ARGUMENT names `file`, the key, what was expected and what was found:
// also where the file asks for something that is not done here.
Result<GgufVocabulary> read_gguf_vocabulary(const Json& metadata, const std::string& file);

}  // namespace runnel
