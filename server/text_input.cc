#include "server/text_input.h"

#include "base/text.h"

namespace runnel {

Result<std::vector<int32_t>> values_of_text(const std::string& text, const TextInput& input) {
  if (input.tokenizer == nullptr) {
    return invalid_argument("text is set, but model " + quote(input.model) +
                            " has no tokenizer: send values");
  }
  if (std::ssize(text) > input.at_most) {
    return invalid_argument("text has " + std::to_string(text.size()) + " bytes; at most " +
                            std::to_string(input.at_most) + " are allowed");
  }
  auto values = input.tokenizer->encode(text, input.until);
  if (!values.ok()) return invalid_argument("text: " + values.status().message());
  return values;
}

}  // namespace runnel
