// Converts text in a request to values of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "base/work_limit.h"
#include "models/text/tokenizer.h"

namespace runnel {

// How text in a call is converted to values.
struct TextInput {
  std::string model;                                     // the name that the caller knows
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // null: the model has no tokenizer
  int64_t at_most = limits::kTextBytes.default_value;    // the maximum size of one text
  WorkLimit limit = WorkLimit();                         // for all texts of the request together
  int64_t unix_time = 0;                                 // the time of day, for templates
};

// The values of `text`. INVALID_ARGUMENT: the model has no tokenizer, the text is too long or takes
// too long, or the tokenizer refuses it.
Result<std::vector<int32_t>> values_of_text(const std::string& text, const TextInput& input);

}  // namespace runnel
