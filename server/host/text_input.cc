#include "server/host/text_input.h"

#include "base/fields.h"
#include "base/text.h"

namespace runnel {

Result<std::vector<int32_t>> values_of_text(const std::string& text, const TextInput& input) {
  if (input.tokenizer == nullptr) {
    return invalid_argument(place_of(fields::kText) + " is set, but model " + quote(input.model) +
                            " has no tokenizer" +
                            hint(": send numbers in " + place_of(fields::kValues)));
  }
  if (std::ssize(text) > input.at_most) {
    return invalid_argument(place_of(fields::kText) + " has " + std::to_string(text.size()) +
                            " bytes; at most " + std::to_string(input.at_most) + " are allowed");
  }
  auto values = input.tokenizer->encode(text, input.limit);
  if (!values.ok())
    return invalid_argument(place_of(fields::kText) + ": " + values.status().message());
  return values;
}

}  // namespace runnel
