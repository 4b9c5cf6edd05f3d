// The tokenizer that lies in a directory, beside the weights.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "models/text/tokenizer.h"

namespace runnel {

// Reads tokenizer.json; where there is none, rwkv_vocab_v20230424.txt. NOT_FOUND when there is
// neither; INVALID_ARGUMENT, naming the file, when it cannot be read or asks for something that is
// not done here.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& directory);

}  // namespace runnel
