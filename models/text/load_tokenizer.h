// Loads the tokenizer of a model from a file in its directory, or from the keys of its GGUF file.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "models/text/tokenizer.h"

namespace runnel {

// Reads tokenizer.json of a directory or, if there is none, rwkv_vocab_v20230424.txt. For a GGUF
// file, reads its keys. NOT_FOUND if the model has no vocabulary. INVALID_ARGUMENT names the file,
// if it cannot be read or asks for something that is not supported.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path);

}  // namespace runnel
