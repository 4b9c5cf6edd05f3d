// Text in a request, as the values of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "models/text/tokenizer.h"

namespace runnel {

// The memory that all texts of an HTTP request may take while they become values.
inline constexpr Duration kMostTokenizing = std::chrono::seconds(2);

// How text in a call becomes values.
struct TextInput {
  std::string model;                                     // its name for the caller
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // the model's; null: it has none
  int64_t at_most = limits::kTextBytes.default_value;    // bytes of one text
  TimePoint until = TimePoint::max();                    // texts are refused that take longer
  int64_t unix_time = 0;                                 // the time of day, for templates
};

// The values of `text`. INVALID_ARGUMENT where the model has no tokenizer, where the text is too
// long or takes too long, and where the tokenizer refuses it.
Result<std::vector<int32_t>> values_of_text(const std::string& text, const TextInput& input);

}  // namespace runnel
