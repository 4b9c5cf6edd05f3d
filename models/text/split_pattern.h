// A regular expression that cuts text into words, as tokenizer.json files have them. They are
// written for Oniguruma; what means another thing to PCRE2, which runs them here, is translated or
// refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

struct pcre2_real_code_8;

namespace runnel {

class SplitPattern {
 public:
  // INVALID_ARGUMENT, which does not name the file, says what in `pattern` cannot be used.
  static Result<SplitPattern> compile(std::string_view pattern);

  // The words of GPT-2: contractions, letters, numbers, other signs, each with the space before it.
  static const char* gpt2();

  // Appends the pieces of `text`, which is valid UTF-8: matches, and what stands between them; none
  // is empty, and together they are the text. INVALID_ARGUMENT past the deadline, and where one
  // place takes too long.
  Status split(std::string_view text, TimePoint deadline,
               std::vector<std::string_view>& pieces) const;

 private:
  explicit SplitPattern(std::shared_ptr<const pcre2_real_code_8> code) : code_(std::move(code)) {}

  std::shared_ptr<const pcre2_real_code_8> code_;
};

}  // namespace runnel
