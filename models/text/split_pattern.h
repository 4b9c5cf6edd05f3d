// A regular expression that splits text into words, as in tokenizer.json files. These expressions
// are written for Oniguruma, and PCRE2 runs them here. Syntax that PCRE2 understands differently is
// translated or refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/work_limit.h"

struct pcre2_real_code_8;

namespace runnel {

class SplitPattern {
 public:
  // INVALID_ARGUMENT says which part of `pattern` cannot be used. The message does not name the
  // file.
  static Result<SplitPattern> compile(std::string_view pattern);

  // The pattern of GPT-2: contractions, letters, numbers and other characters, each with the space
  // before it.
  static const char* gpt2();

  // Appends the pieces of `text`, which must be valid UTF-8: the matches, and the text between
  // them. No piece is empty, and together they are the text. INVALID_ARGUMENT if the limit is
  // passed, or if matching takes too long at one place.
  Status split(std::string_view text, WorkLimit& limit,
               std::vector<std::string_view>& pieces) const;

 private:
  explicit SplitPattern(std::shared_ptr<const pcre2_real_code_8> code) : code_(std::move(code)) {}

  std::shared_ptr<const pcre2_real_code_8> code_;
};

}  // namespace runnel
