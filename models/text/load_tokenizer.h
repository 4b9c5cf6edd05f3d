// The tokenizer of a model: a file in its directory, or the keys of its GGUF file.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "models/text/tokenizer.h"

namespace runnel {

// Reads tokenizer.json of a directory; where there is none, rwkv_vocab_v20230424.txt; or the keys
// of a GGUF file. NOT_FOUND when the model has no vocabulary; INVALID_ARGUMENT, naming the file,
// when it cannot be read or asks for something that is not implemented.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path);

}  // namespace runnel
